import StageContainer
import StageModel
import StagingService

extension ContainerScope {
    /// Returns the manifests that the options select, in the order of their applications.
    func manifests(_ view: ContainerView) throws(CommandFailure) -> [AcceptedRecord] {
        selected(try storedManifests(view))
    }

    /// Returns the stored manifests, in the order of their applications.
    func storedManifests(_ view: ContainerView) throws(CommandFailure) -> [AcceptedRecord] {
        do throws(ContainerError) {
            return try view.decodedManifests().map(AcceptedRecord.init)
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Returns those of the stored manifests that the options select.
    func selected(_ stored: [AcceptedRecord]) -> [AcceptedRecord] {
        let only = session.target.registration?.application
        let urls = session.target.manifests
        return stored.filter { manifest in
            if let only { return manifest.application == only }
            return urls.isEmpty || urls.contains(manifest.record.url)
        }
    }

    /// Returns the offers of other applications that a run for the application does not replace by older versions; none if the
    /// application is not registered.
    func offers(
        besides application: ApplicationID,
        of stored: [AcceptedRecord]
    ) -> GroupOffers {
        let folders = RegistrationLocations.folders(environment: session.target.environment)
        guard stored.count > 1,
            let own = RegistrationLocations.registration(of: application, in: folders)
        else { return GroupOffers([Manifest]()) }
        let others = RegistrationLocations.applications(trustedAs: own, in: folders)
        let found = stored.filter { others.contains($0.application) }
        // A manifest that cannot be read offers no packs.
        return GroupOffers(found.compactMap { try? $0.manifest.get() })
    }
}

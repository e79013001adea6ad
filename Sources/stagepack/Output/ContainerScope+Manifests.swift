import StageContainer
import StageModel
import StagingService

extension ContainerScope {
    /// Returns the stored manifests, in the order of their applications.
    func storedManifests(_ view: ContainerView) throws(CommandFailure) -> [AcceptedRecord] {
        do throws(ContainerError) {
            return try view.decodedManifests().map(AcceptedRecord.init)
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Returns the stored manifests that the options select.
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
    /// Returns the conflicts between the selected manifests and others that count for the group.
    ///
    /// Leaves out applications that are not registered for the group any more, unless an option names the container only.
    func conflicts(among stored: [AcceptedRecord]) -> [OfferConflict] {
        guard !OfferConflict.all(among: stored.manifests).isEmpty else { return [] }
        let folders = RegistrationLocations.folders(environment: session.target.environment)
        let group = applications.lazy
            .compactMap { RegistrationLocations.registration(of: $0, in: folders)?.group }.first
        let current = stored.filter { record in
            guard let group else { return true }
            let found = RegistrationLocations.registration(of: record.application, in: folders)
            return found?.group == group
        }
        let chosen = Set(selected(stored).map(\.application))
        return OfferConflict.all(among: current.manifests).filter { conflict in
            conflict.applications.contains(where: chosen.contains)
        }
    }
}

extension [AcceptedRecord] {
    /// The manifests that can be read.
    fileprivate var manifests: [Manifest] { compactMap { try? $0.manifest.get() } }
}

extension ContainerReader {
    /// Returns the first of the applications whose stored manifest offers a pack; `nil` if none does.
    func application(
        offering id: PackID,
        among applications: [ApplicationID]
    ) -> ApplicationID? {
        applications.first { application in
            // A manifest that cannot be read offers no packs.
            guard let stored = try? storedManifest(for: application),
                let manifest = try? stored.manifest(of: application)
            else { return false }
            return manifest[id] != nil
        }
    }
}

package import StageContainer
import StageEngine
package import StageModel
import StageSystem
package import SystemPackage

/// The registered applications, and the containers of their groups.
package struct RegisteredTargets {
    /// The applications that have a registration, valid or not.
    package let applications: Set<ApplicationID>
    /// The targets of those whose registration is valid.
    private let targets: [StagingTarget]

    /// Reads the registrations that an environment determines.
    ///
    /// - Throws: ``StagingFailure`` if a folder of registrations cannot be read.
    package init(environment: [String: String]) throws(StagingFailure) {
        let folders = RegistrationFolders(environment: environment)
        let ids = try folders.applications()
        applications = Set(ids)
        targets = ids.compactMap { id in
            // The run of an application reports that its registration cannot be used.
            guard let found = try? folders.registration(of: id) else { return nil }
            var target = StagingTarget(environment: environment)
            target.use(found)
            return target
        }
    }

    /// Returns the applications of a container's group whose manifests the container does not have yet.
    ///
    /// Packs of the container may belong to them, for example after an application was renamed.
    package func awaited(in reader: ContainerReader) throws(ContainerError) -> [ApplicationID] {
        var found: [ApplicationID] = []
        for target in targets where target.isStaged(in: reader.root.path) {
            guard let id = target.registration?.application,
                try reader.storedManifest(for: id) == nil
            else { continue }
            found.append(id)
        }
        return found
    }

    /// Returns whether an application is registered for the group of another container beside this one.
    package func isElsewhere(_ id: ApplicationID, than path: FilePath) -> Bool {
        target(of: id).map { target in
            // A container at another path was named by an option.
            target.knownContainer?.removingLastComponent() == path.removingLastComponent()
                && !target.isStaged(in: path)
        } ?? false
    }

    /// Returns whether every essential pack of an application is staged in the containers of its group.
    package func hasEssentialPacks(_ id: ApplicationID) -> Bool {
        target(of: id)?.hasEssentialPacks ?? false
    }

    private func target(of id: ApplicationID) -> StagingTarget? {
        targets.first { $0.registration?.application == id }
    }
}

extension StagingTarget {
    /// `true` if a container that readers search has the manifest of the registered application, and one of them each
    /// essential pack of that manifest.
    package var hasEssentialPacks: Bool {
        // A container that cannot be read has no packs for readers.
        guard let id = registration?.application,
            let view = try? ContainerView(opening: containersForReading)
        else { return false }
        let manifests = view.readers.compactMap { reader in
            (try? reader?.storedManifest(for: id)).flatMap { try? $0.manifest(of: id) }
        }
        guard let manifest = manifests.first else { return false }
        return manifest.packs.allSatisfy { pack in
            guard case .essential = pack.policy,
                pack.isFor(applicationVersion: installedVersion)
            else { return true }
            return (try? view.copies(of: pack.id))?.isEmpty == false
        }
    }

    /// Returns the other applications of the group whose manifests in a container offer these versions of packs, by pack.
    ///
    /// Leaves out applications that are trusted less than the target's. Reads the registrations and the manifests of the
    /// other applications, unless there are no `versions`.
    func othersOffering(
        _ versions: [PackID: Planner.StagedVersion],
        in reader: ContainerReader?
    ) throws(StageError) -> [PackID: ApplicationID] {
        guard !versions.isEmpty, let reader, let registration else { return [:] }
        let folders = RegistrationLocations.folders(environment: environment)
        let others = RegistrationLocations.applications(trustedAs: registration, in: folders)
        var found: [PackID: ApplicationID] = [:]
        do throws(ContainerError) {
            for application in others.sorted() {
                // A manifest that cannot be read offers no packs.
                guard let record = try reader.storedManifest(for: application),
                    let manifest = try? record.manifest(of: application)
                else { continue }
                for pack in manifest.packs
                where found[pack.id] == nil && versions[pack.id]?.holds(pack) == true {
                    found[pack.id] = application
                }
            }
        } catch {
            throw .container(error)
        }
        return found
    }

    /// Returns whether this user's packs of the target are staged in a container.
    fileprivate func isStaged(in path: FilePath) -> Bool {
        knownContainer?.isSameDirectory(as: path) ?? false
    }
}

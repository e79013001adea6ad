import FoundationEssentials
import StageContainer
import StageModel
import StageSystem
import StagingService
import SystemPackage

/// The result of removing the packs and records of applications that are no longer registered.
struct UnregisteredRemoval {
    /// The applications whose records were removed.
    var applications: [ApplicationID] = []
    /// The applications whose records stay, because not all of their packs could be removed.
    var remaining: [ApplicationID] = []
    /// The applications of both lists that are now registered for another group.
    var moved: [ApplicationID] = []
    /// The registered applications whose manifest has to be stored first, since the packs may be theirs, too.
    var awaited: [ApplicationID] = []
    /// The packs that were removed.
    var packs: [PackID] = []
    /// The packs that stay until they are no longer staged or read by another process.
    var inUse: [PackID] = []
    /// The first error; packs and records after it may have been removed.
    var failure: ContainerError?
}

extension Container {
    /// Removes the packs of applications whose registration was removed, and then their records.
    ///
    /// The file of the registration that the last run used must be missing from its folder, or be for another group
    /// whose container has the essential packs. If the folder itself is missing, as on a disk that is not mounted, or
    /// with another `XDG_CONFIG_HOME`, the application stays. The folder of packages is an exception, since package managers
    /// remove it with its last file: it may be missing if the directory that remains above it has other entries.
    ///
    /// Removes nothing while the container lacks the manifest of an application that is registered for its group: after
    /// an application was renamed, its packs are those of the old name.
    ///
    /// The records are removed after all packs, the history last: while a pack is in use, or after a crash, a
    /// later call finds the application again.
    ///
    /// - Parameters:
    ///   - registered: The registered applications.
    ///   - isDryRun: Pass `true` to remove nothing.
    /// - Returns: The applications and packs that are removed, or that would be.
    func removeUnregistered(
        _ registered: RegisteredTargets,
        isDryRun: Bool = false
    ) -> UnregisteredRemoval {
        var removal = UnregisteredRemoval()
        do throws(ContainerError) {
            let applications = try reader.unregisteredApplications(besides: registered)
            guard !applications.isEmpty else { return removal }
            removal.remaining = applications
            removal.moved = applications.filter(registered.applications.contains)
            removal.awaited = try registered.awaited(in: reader)
            guard removal.awaited.isEmpty,
                let obsolete = try reader.packs(onlyOf: Set(applications))
            else { return removal }
            if isDryRun {
                removal.packs = obsolete
            } else {
                for id in obsolete { removeCompletely(id, countingIn: &removal) }
                // A pack whose first version another process is staging has no generation yet.
                let offered = try reader.packs(offeredBesides: Set(applications))
                for id in try packsWithLocks() where offered?.contains(id) == false {
                    guard !removal.inUse.contains(id) else { continue }
                    if try attemptLock(id) == nil { removal.inUse.append(id) }
                }
                guard removal.inUse.isEmpty, removal.failure == nil,
                    try removeRest(besides: Set(applications))
                else { return removal }
                for id in applications { try forget(id) }
            }
            (removal.applications, removal.remaining) = (applications, [])
        } catch {
            removal.failure = removal.failure ?? error
        }
        return removal
    }

    /// Removes all generations of a pack, unless another process stages or reads it.
    private func removeCompletely(_ id: PackID, countingIn removal: inout UnregisteredRemoval) {
        do throws(ContainerError) {
            guard let lock = try attemptLock(id) else {
                removal.inUse.append(id)
                return
            }
            // Includes pinned generations: a pin ends when the application of the pack is uninstalled.
            let result = try remove(lock, includingPinned: true)
            try result.check()
            if result.inUse > 0 { removal.inUse.append(id) } else { removal.packs.append(id) }
        } catch {
            removal.failure = removal.failure ?? error
        }
    }

    /// Removes downloads, staging areas and single files from a container without other applications.
    ///
    /// - Returns: `false` if another process uses single files.
    private func removeRest(besides applications: Set<ApplicationID>) throws(ContainerError) -> Bool
    {
        guard try isDeserted(besides: applications) else { return true }
        var removal = try removePartialContent { _ in false }
        let now = Int64(Date().timeIntervalSince1970)
        removal.add(removeLeftovers(now: now, offering: OfferedContent()))
        try removal.check()
        return removal.inUse == 0
    }

    /// Returns whether the container has no packs, and no manifests and histories of other applications.
    func isDeserted(besides applications: Set<ApplicationID> = []) throws(ContainerError) -> Bool {
        guard applications.isSuperset(of: try reader.applications()),
            applications.isSuperset(of: try reader.applicationsWithHistory())
        else { return false }
        return try reader.packsWithGenerations().isEmpty
    }
}

extension ContainerReader {
    /// Returns the applications whose last registration was removed from its folder, and those that have their
    /// essential packs in the container of another group.
    fileprivate func unregisteredApplications(
        besides registered: RegisteredTargets
    ) throws(ContainerError) -> [ApplicationID] {
        var found: [ApplicationID] = []
        for id in try applicationsWithHistory() {
            guard let path = try history(of: id)?.registration else { continue }
            let isGone =
                registered.applications.contains(id)
                ? registered.isElsewhere(id, than: root.path) && registered.hasEssentialPacks(id)
                : FilePath(path).isMissingFromItsFolder
            if isGone { found.append(id) }
        }
        return found
    }

    /// Returns the packs with generations that no manifest of other applications offers; `nil` if such a manifest
    /// cannot be read.
    fileprivate func packs(
        onlyOf applications: Set<ApplicationID>
    ) throws(ContainerError) -> [PackID]? {
        guard let wanted = try packs(offeredBesides: applications) else { return nil }
        // An earlier call has removed the links of packs that were in use.
        let found = Set(try stagedPacks()).union(try packsWithGenerations())
        return found.subtracting(wanted).sorted()
    }

    /// Returns the packs that manifests of other applications offer, and those that are kept for them; `nil` if such a manifest
    /// cannot be read.
    fileprivate func packs(
        offeredBesides applications: Set<ApplicationID>
    ) throws(ContainerError) -> Set<PackID>? {
        var wanted = try keptPacks(ignoring: applications)
        for id in try self.applications() where !applications.contains(id) {
            // The run that fetches this manifest reports the error.
            guard let manifest = try? storedManifest(for: id)?.manifest(of: id) else { return nil }
            wanted.formUnion(manifest.packs.map(\.id))
        }
        return wanted
    }
}

extension FilePath {
    /// `true` if the folder of the path can be read and has no entry of its name.
    ///
    /// The folder of packages may be missing itself: dpkg removes it with its last file where StagePack has no package.
    fileprivate var isMissingFromItsFolder: Bool {
        guard isAbsolute, let name = lastComponent else { return false }
        let folder = removingLastComponent()
        do throws(FileError) {
            return try Directory.open(folder).status(FilePath(name)) == nil
        } catch  where error.errno == .noSuchFileOrDirectory {
            return folder == RegistrationLocations.ofPackages && Self.isFolderOfPackagesRemoved
        } catch {
            return false
        }
    }

    /// `true` if the folder of packages does not exist, and its disk is mounted: no link in its path leads elsewhere, and
    /// the directory that remains above it has other entries, unlike a mount point.
    private static var isFolderOfPackagesRemoved: Bool {
        do throws(FileError) {
            let share = try Directory.open("/usr/share")
            guard let parent = try share.status("stagepack") else {
                return try !share.entries().isEmpty
            }
            guard parent.kind == .directory, try share.status("stagepack/apps.d") == nil else {
                return false
            }
            return try share.directory("stagepack")?.entries().isEmpty == false
        } catch {
            return false
        }
    }
}

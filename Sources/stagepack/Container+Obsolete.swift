import StageContainer
import StageModel
import StageSystem
import SystemPackage

extension Container {
    /// Removes the records of applications whose registration was removed, and their packs.
    ///
    /// The file of the registration that the last run used must be missing from its folder. If the folder itself
    /// is missing, as on a disk that is not mounted, or with another `XDG_CONFIG_HOME`, the application stays.
    ///
    /// - Parameters:
    ///   - registered: The registered applications.
    ///   - isDryRun: Pass `true` to remove nothing.
    /// - Returns: The applications and packs that are removed, or that would be.
    /// - Throws: ``CommandFailure`` if the container cannot be read or written.
    func forgetUnregistered(
        _ registered: Set<ApplicationID>,
        isDryRun: Bool = false
    ) async throws(CommandFailure) -> (forgotten: [ApplicationID], removed: [PackID]) {
        var forgotten: [ApplicationID] = []
        do throws(ContainerError) {
            for id in try reader.applicationsWithHistory() where !registered.contains(id) {
                guard let path = try reader.history(of: id)?.registration,
                    FilePath(path).isMissingFromItsFolder
                else { continue }
                if !isDryRun { try forget(id) }
                forgotten.append(id)
            }
        } catch {
            throw CommandFailure(error)
        }
        guard !forgotten.isEmpty else { return ([], []) }
        do throws(ContainerError) {
            let removed =
                try isDryRun
                ? reader.packs(onlyOf: Set(forgotten)) : removeObsoletePacks(includingPinned: true)
            return (forgotten, removed)
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Returns whether the container has no manifests, no history and no packs.
    func isDeserted() throws(CommandFailure) -> Bool {
        do throws(ContainerError) {
            guard try reader.applications().isEmpty else { return false }
            guard try reader.applicationsWithHistory().isEmpty else { return false }
            return try reader.packsWithGenerations().isEmpty
        } catch {
            throw CommandFailure(error)
        }
    }
}

extension ContainerReader {
    /// Returns the staged packs that no manifest of other applications offers; none if such a manifest cannot be
    /// read.
    fileprivate func packs(
        onlyOf applications: Set<ApplicationID>
    ) throws(ContainerError) -> [PackID] {
        var wanted = try keptPacks()
        for id in applications { wanted.subtract(try stagedPacks(of: id)) }
        for id in try self.applications() where !applications.contains(id) {
            guard let manifest = try? storedManifest(for: id)?.manifest(of: id) else { return [] }
            wanted.formUnion(manifest.packs.map(\.id))
        }
        return try stagedPacks().filter { !wanted.contains($0) }.sorted()
    }
}

extension FilePath {
    /// `true` if the folder of the path can be read and has no entry of its name.
    fileprivate var isMissingFromItsFolder: Bool {
        guard isAbsolute, let name = lastComponent else { return false }
        do throws(FileError) {
            return try Directory.open(removingLastComponent()).status(FilePath(name)) == nil
        } catch {
            return false
        }
    }
}

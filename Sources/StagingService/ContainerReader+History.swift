import StageContainer
import StageEngine
import StageModel
import SystemPackage

extension ContainerReader {
    /// Opens the container for reading; returns `nil` if there is none.
    static func reading(_ path: FilePath) throws(StageError) -> ContainerReader? {
        do throws(ContainerError) {
            return try open(path)
        } catch {
            throw .container(error)
        }
    }

    /// Returns the history of an application, as it is before a run.
    func historyRecord(
        rememberedOf application: ApplicationID
    ) throws(StageError) -> HistoryRecord {
        do throws(ContainerError) {
            return try historyRecord(of: application)
        } catch {
            throw .container(error)
        }
    }

    /// Returns whether the application has loaded a pack of its manifest.
    func hasLaunched(_ application: ApplicationID) throws(ContainerError) -> Bool {
        if let history = try history(of: application), history.firstLoadedAt != nil { return true }
        guard let record = try storedManifest(for: application),
            // An error here is reported when the manifest is next downloaded.
            let manifest = try? record.manifest(of: application)
        else { return false }
        return try hasLoadedPack(of: manifest)
    }

    /// Returns whether a pack of a manifest has been loaded.
    ///
    /// For a manifest without packs, such as one in the application's own format, checks the packs that were
    /// staged for its application before.
    func hasLoadedPack(of manifest: Manifest) throws(ContainerError) -> Bool {
        let ids = Set(manifest.packs.map(\.id))
        for id in try ids.isEmpty ? stagedPacks(of: manifest.application) : ids
        where try hasBeenLoaded(id) { return true }
        return false
    }

    /// Returns whether a pack of a planner's manifest has been loaded, after a run by that planner.
    ///
    /// If the run has changed no packs, relies on the planner for current generations: the next run sees
    /// loads in between.
    func hasLoadedPack(
        afterRunBy planner: Planner,
        hasChangedPacks: Bool
    ) throws(ContainerError) -> Bool {
        if planner.hasReadPack { return true }
        if hasChangedPacks || planner.manifest.packs.isEmpty {
            return try hasLoadedPack(of: planner.manifest)
        }
        for pack in planner.manifest.packs {
            let isUnread = planner.staged[pack.id] != nil && !planner.incomplete.contains(pack.id)
            let isLoaded =
                isUnread
                ? try hasBeenLoaded(besidesUnreadGenerationOf: pack.id)
                : try hasBeenLoaded(pack.id)
            if isLoaded { return true }
        }
        return false
    }
}

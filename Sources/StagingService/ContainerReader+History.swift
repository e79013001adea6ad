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

    /// Returns whether a pack of a planner's manifest has been loaded, with what the planner saw of current generations.
    ///
    /// A generation that was current then, and has been replaced since, counts if it has been used.
    func hasLoadedPack(since planner: Planner) throws(ContainerError) -> Bool {
        if planner.isUsed { return true }
        let packs = planner.manifest.packs
        if packs.isEmpty { return try hasLoadedPack(of: planner.manifest) }
        for pack in packs where try hasBeenLoaded(besidesUnusedGenerationOf: pack.id) {
            return true
        }
        return false
    }
}

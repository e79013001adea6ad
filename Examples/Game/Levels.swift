import BackgroundAssets
import Foundation

/// The levels of the game, of which each is an asset pack; written for iOS, but for 'configuration'.
struct Levels {
    private let manager: AssetPackManager

    /// Creates the levels of the registered application.
    init() {
        AssetPackManager.shared.configuration = .init(application: "com.example.game")
        manager = .shared
    }

    /// Downloads a level if it is not staged, and reports the progress.
    func prepare(_ level: String) async throws {
        let pack = try await manager.assetPack(withID: level)
        let updates = manager.statusUpdates(forAssetPackWithID: pack.id)
        let watching = Task {
            for await case .downloading(_, let progress) in updates {
                let (done, all) = (progress.completedUnitCount, progress.totalUnitCount)
                print("\(pack.id): \(100 * done / max(all, 1)) %")
            }
        }
        defer { watching.cancel() }
        try await manager.ensureLocalAvailability(of: pack)
    }

    /// Reads a file of a level.
    func text(of level: String) throws -> String {
        let path = FilePath("\(level)/title.txt")
        let data = try manager.contents(at: path, searchingInAssetPackWithID: level)
        return String(decoding: data, as: UTF8.self)
    }

    /// The levels, with a mark on the staged ones.
    func list() async throws -> [String] {
        let packs = try await manager.manifest.assetPacks.sorted { $0.id < $1.id }
        return packs.map { pack in
            let isHere = manager.assetPackIsAvailableLocally(withID: pack.id)
            return "\(isHere ? "*" : " ") \(pack.id), version \(pack.version)"
        }
    }

    /// Downloads new versions of the staged levels, and returns their names.
    func update() async throws -> [String] {
        let (updating, _) = try await manager.checkForUpdates()
        let packs = try await manager.manifest.assetPacks.filter { updating.contains($0.id) }
        try await manager.ensureLocalAvailability(of: packs, requireLatestVersions: true)
        return updating.sorted()
    }

    /// Deletes a level.
    func delete(_ level: String) async throws {
        try await manager.remove(assetPackWithID: level)
    }

    /// Tells the downloader extension which films to download when it runs for this player.
    ///
    /// root chooses the films that the system's run downloads at the installation.
    func choose(quality: String) throws {
        let folder = FileManager.default
            .containerURL(forSecurityApplicationGroupIdentifier: "com.example.games")
        guard let folder else { throw CocoaError(.fileNoSuchFile) }
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        try Data(quality.utf8).write(to: folder.appending(path: "quality"))
    }
}

public import FoundationEssentials
public import StagePack
import Synchronization

/// The wallpapers of an application: staged before its first launch or fetched on demand.
///
/// Configure the store once, when the application starts:
///
/// ```swift
/// import StageModel
/// import StagePack
/// import WallpaperStore
///
/// let containers = ContainerLocations.forReading(try ApplicationGroupID("net.example"))
/// let fetcher = CommandFetcher(source: .application(try ApplicationID("net.example.wallpaper")))
/// WallpaperStore.configure(PackStore(containers: containers, fetcher: fetcher))
/// let folder = try await WallpaperStore.loadPack("aurora")
/// ```
public enum WallpaperStore {
    private static let store = Mutex<PackStore?>(nil)

    /// Sets the store for all subsequent calls.
    public static func configure(_ store: PackStore) {
        self.store.withLock { $0 = store }
    }

    /// Returns the directory of a staged pack, or `nil` if the pack is not staged.
    ///
    /// Costs one stat(2), one fstat(2) and one readlink(2) per container and, the first time, a lock; does not use
    /// the network.
    ///
    /// - Throws: `PackStoreError`; `notConfigured` if ``configure(_:)`` was not called before.
    public static func localURL(for id: String) throws(PackStoreError) -> URL? {
        try current().localURL(for: id)
    }

    /// Returns the directory of a pack: at once if the pack is staged, and otherwise after downloading,
    /// verifying and publishing it.
    ///
    /// The files stay unchanged for the lifetime of the process, even if an update is published, unless
    /// another store is configured.
    ///
    /// - Throws: `PackStoreError`; see `PackStoreError.retryAdvice`.
    public static func loadPack(
        _ id: String,
        options: PackStore.LoadOptions = PackStore.LoadOptions()
    ) async throws(PackStoreError) -> URL {
        try await current().loadPack(id, options: options)
    }

    /// Returns the updates, from now on, of packs that are fetched on demand.
    ///
    /// - Throws: `notConfigured` if ``configure(_:)`` was not called before.
    public static func updates() throws(PackStoreError) -> AsyncStream<PackUpdate> {
        try current().updates()
    }

    private static func current() throws(PackStoreError) -> PackStore {
        guard let store = store.withLock({ $0 }) else { throw .notConfigured }
        return store
    }
}

public import FoundationEssentials
public import StagePack
import Synchronization

/// The wallpapers of an application, staged before its first launch or fetched when asked for.
///
/// Tell it once, when the application starts, where its packs are:
///
/// ```swift
/// WallpaperStore.configure(PackStore(containers: [container], fetcher: CommandFetcher(...)))
/// let folder = try await WallpaperStore.loadPack("aurora")
/// ```
public enum WallpaperStore {
    private static let store = Mutex<PackStore?>(nil)

    /// Sets the store that all calls go to from now on.
    public static func configure(_ store: PackStore) {
        self.store.withLock { $0 = store }
    }

    /// Returns the directory of a staged pack, or `nil` if the pack is not staged.
    ///
    /// Costs a link read and, the first time, a lock; touches no network.
    ///
    /// - Throws: ``PackStoreError``; `notConfigured` before ``configure(_:)``.
    public static func localURL(for id: String) throws(PackStoreError) -> URL? {
        try current().localURL(for: id)
    }

    /// Returns the directory of a pack: at once where it is staged, else as soon as it was fetched,
    /// verified and published.
    ///
    /// The files stay as they are for as long as the process runs, even while an update is published.
    ///
    /// - Throws: ``PackStoreError``, whose `retryAdvice` tells when trying again makes sense.
    public static func loadPack(
        _ id: String,
        options: PackStore.LoadOptions = PackStore.LoadOptions()
    ) async throws(PackStoreError) -> URL {
        try await current().loadPack(id, options: options)
    }

    /// What happens to the packs that are fetched on demand, from now on.
    ///
    /// - Throws: `notConfigured` before ``configure(_:)``.
    public static func updates() throws(PackStoreError) -> AsyncStream<PackUpdate> {
        try current().updates
    }

    private static func current() throws(PackStoreError) -> PackStore {
        guard let store = store.withLock({ $0 }) else { throw .notConfigured }
        return store
    }
}

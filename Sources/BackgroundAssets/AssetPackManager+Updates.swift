import StageContainer
import StageModel
import StagePack

extension AssetPackManager {
    /// What happens to the packs that this process fetches, from now on.
    ///
    /// What other processes fetch, such as the timers of the system, is not in it. A listener that is more
    /// than 1,024 updates behind loses the oldest.
    public nonisolated var statusUpdates: some AsyncSequence<DownloadStatusUpdate, Never> & Sendable
    {
        updates.updates()
    }

    /// What happens to one pack from now on; ends after `finished` or `failed`.
    public nonisolated func statusUpdates(
        forAssetPackWithID assetPackID: String
    ) -> some AsyncSequence<DownloadStatusUpdate, Never> & Sendable {
        updates.updates(of: assetPackID)
    }

    /// Asks the server for the manifest, begins to update the packs that are out of date, and removes those
    /// that are offered no more.
    ///
    /// Returns when the updates have begun: ``statusUpdates`` tells how they go on, and
    /// ``ensureLocalAvailability(of:requireLatestVersion:)`` waits for one. Packs that the container of the
    /// system has are updated in the user's, and removed by the system's own timer. A pack that another
    /// application of the group offers is left alone.
    ///
    /// - Returns: the packs that are being updated, and those that are removed.
    /// - Throws: that the server does not answer, or a pack cannot be removed.
    @discardableResult
    public func checkForUpdates() async throws -> (
        updatingIDs: Set<String>, removedIDs: Set<String>
    ) {
        let source = try source()
        try await source.store.refresh()
        var updating: Set<String> = []
        for pack in try (source.offers() ?? [:]).values {
            guard let staged = try source.store.currentGeneration(of: pack.id),
                !staged.holds(pack)
            else { continue }
            download(pack.id, try source.assetPack(pack), source, isKept: true)
            updating.insert(pack.id.text)
        }
        let removed = try await source.store.removeObsoletePacks()
        return (updating, Set(removed.map(\.text)))
    }

    /// Removes a pack, and cancels its fetch if there is one.
    ///
    /// Nothing that was read of it by URL can be relied on from here on.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if the pack is not here; that
    ///   another process is staging it, or that it is not the user's to remove.
    public func remove(assetPackWithID assetPackID: String) async throws {
        let source = try source()
        let id = try Self.packID(assetPackID)
        await cancelDownload(id)
        guard try await source.store.remove(id) else {
            throw ManagedBackgroundAssetsError.assetPackNotFound(withID: assetPackID)
        }
    }
}

extension AssetPackManager {
    /// Which packs of a batch are here, and why the others are not.
    public struct LocalAvailabilityError: Error, Sendable {
        /// The packs that are here.
        public internal(set) var successes: Set<AssetPack>
        /// Why each of the others is not.
        public internal(set) var failures: [AssetPack: any Error]
    }
}

extension AssetPackManager.LocalAvailabilityError: CustomStringConvertible {
    /// The failures, each with its pack, as a sentence fragment a person can read.
    public var description: String {
        failures.map { "\($0.key.id): \($0.value)" }.sorted().joined(separator: "; ")
    }
}

import StageContainer
import StageModel
import StagePack
import StageSystem

extension AssetPackManager {
    /// The status updates of the packs that this process downloads, from now on.
    ///
    /// Does not include downloads of other processes, such as the system's timers. For a listener that is more than 1,024
    /// updates behind, progress updates and pauses that are over are dropped first, the oldest ones of a pack.
    public nonisolated var statusUpdates: some AsyncSequence<DownloadStatusUpdate, Never> & Sendable
    {
        updates.elements()
    }

    /// Returns the status updates of one pack from now on; ends after `finished` or `failed`.
    public nonisolated func statusUpdates(
        forAssetPackWithID assetPackID: String
    ) -> some AsyncSequence<DownloadStatusUpdate, Never> & Sendable {
        updates.elements(where: { $0.assetPack.id == assetPackID }, endingWith: \.isLast)
    }

    /// Requests the manifest from the server, starts updates of outdated packs, and removes packs that are
    /// not offered any more.
    ///
    /// Returns when the updates have started, after those that are being cancelled have ended: ``statusUpdates``
    /// reports their progress, and ``ensureLocalAvailability(of:requireLatestVersion:)`` waits for one. Packs in the
    /// system's container are updated in the user's container, and removed by the system's timer. Packs that are
    /// pinned, and those that another application of the group offers, are not removed. A pinned version stays, and so does
    /// one that another application of a registered application's group offers, if it is not older than the own one, and a
    /// newer one in the system's container.
    ///
    /// - Returns: The packs that are being updated, and those that are removed.
    /// - Throws: An error if the server does not respond; also if a pack cannot be removed, after the updates have started.
    @discardableResult
    public func checkForUpdates() async throws -> (
        updatingIDs: Set<String>, removedIDs: Set<String>
    ) {
        let source = try source()
        try await source.store.refresh()
        var updating: Set<String> = []
        for pack in try await source.outdatedPacks() where try await update(pack, from: source) {
            updating.insert(pack.id.text)
        }
        let removed = try await source.store.removeObsoletePacks()
        return (updating, Set(removed.map(\.text)))
    }

    /// Starts the update of a pack, or keeps a running one; returns `false` if the pack is up to date, pinned or not
    /// staged, or if its staged version stays.
    private func update(_ pack: Pack, from source: PackSource) async throws -> Bool {
        while true {
            try await waitForCancelledDownload(pack.id)
            guard let staged = try source.store.currentGeneration(of: pack.id),
                !staged.holds(pack), try source.store.pin(of: pack.id) == nil,
                try await !source.keepsStaged(insteadOf: pack)
            else { return false }
            let assetPack = try source.assetPack(pack)
            if download(pack.id, pack: assetPack, source: source).keep() { return true }
        }
    }

    /// Removes a pack, after cancelling its download in this process, if any, and waiting for the end of it.
    ///
    /// Also cancels transfers of the pack that earlier fetches have left to the daemon, so that they do not install it again;
    /// those of a daemon that does not respond continue, and may, of which a message of swift-log warns. URLs of the pack are
    /// invalid afterwards.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if the pack is neither staged nor
    ///   being downloaded here; an error if it is pinned, another process is staging it, or the user must not
    ///   remove it; `CancellationError`, which leaves a staged pack as it is.
    public func remove(assetPackWithID assetPackID: String) async throws {
        let source = try source()
        let id = try Self.packID(assetPackID)
        let wasDownloading = try await cancelDownload(id)
        guard try await source.remove(id) || wasDownloading else {
            throw ManagedBackgroundAssetsError.assetPackNotFound(withID: assetPackID)
        }
    }
}

extension AssetPackManager {
    /// The outcome of a batch: the available packs, and the errors of the others.
    public struct LocalAvailabilityError: Error, Sendable {
        /// The available packs.
        public internal(set) var successes: Set<AssetPack>
        /// The errors of the other packs.
        public internal(set) var failures: [AssetPack: any Error]
    }
}

extension AssetPackManager.LocalAvailabilityError: CustomStringConvertible {
    /// The failures, each with its pack, as a sentence fragment.
    public var description: String {
        failures.map { "\($0.key.id): \($0.value)" }.sorted().joined(separator: "; ")
    }
}

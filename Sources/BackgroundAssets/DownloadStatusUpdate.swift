public import Foundation

extension AssetPackManager {
    /// A status update of a download.
    @nonexhaustive(warn)
    public enum DownloadStatusUpdate: Sendable {
        /// The download has started, or continues after a pause.
        case began(AssetPack)
        /// The download waits for the network, a server, or another process that stages the pack.
        case paused(AssetPack)
        /// Bytes of the pack were received.
        ///
        /// The progress counts them, and its `cancel()` cancels the download, in the daemon, too. The received bytes
        /// are kept for the next download of the pack. The total is the size of the download, which is smaller than
        /// ``AssetPack/downloadSize`` for an update that transfers only the differences. The progress is complete before
        /// ``finished(_:)``, also if another process has transferred the pack.
        ///
        /// It changes while the download runs. Any thread may read `completedUnitCount`, `totalUnitCount`, `isFinished`,
        /// `isIndeterminate` and `isCancelled`; on Linux, Foundation reads `fractionCompleted`, and the values of a
        /// parent, without a lock.
        case downloading(AssetPack, Progress)
        /// The pack is staged.
        case finished(AssetPack)
        /// The download failed or was cancelled.
        case failed(AssetPack, any Error)

        /// The pack of the update.
        var assetPack: AssetPack {
            switch self {
            case .began(let pack), .paused(let pack), .downloading(let pack, _),
                .finished(let pack), .failed(let pack, _):
                pack
            }
        }

        /// Indicates whether this is the last update of the download.
        var isLast: Bool {
            switch self {
            case .finished, .failed: true
            case .began, .paused, .downloading: false
            }
        }
    }
}

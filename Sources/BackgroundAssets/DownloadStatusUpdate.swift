public import Foundation
import Synchronization

extension AssetPackManager {
    /// A status update of a download.
    public enum DownloadStatusUpdate: Sendable {
        /// The download has started.
        case began(AssetPack)
        /// The download waits for the network, a server, or another process that stages the pack.
        case paused(AssetPack)
        /// Bytes of the pack were received.
        ///
        /// The progress counts them, and its `cancel()` cancels the download. Its total is the size of the download,
        /// which is smaller than ``AssetPack/downloadSize`` for an update that transfers only the differences.
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

/// Broadcasts updates to all listeners.
///
/// A listener that is far behind loses the oldest updates, never the latest, and delays no other.
final class StatusBroadcast: Sendable {
    typealias Update = AssetPackManager.DownloadStatusUpdate

    private struct Listener {
        /// The pack to listen for; `nil` for all.
        var id: String?
        var continuation: AsyncStream<Update>.Continuation
    }

    private struct State {
        var listeners: [UInt64: Listener] = [:]
        var lastKey: UInt64 = 0
    }

    private static let capacity = 1024
    private let state = Mutex(State())

    func send(_ update: Update) {
        let listeners = state.withLock { Array($0.listeners.values) }
        for listener in listeners {
            guard let id = listener.id else {
                listener.continuation.yield(update)
                continue
            }
            guard id == update.assetPack.id else { continue }
            listener.continuation.yield(update)
            if update.isLast { listener.continuation.finish() }
        }
    }

    /// Returns the updates from now on: of all packs, or of one until its download has ended.
    func updates(of id: String? = nil) -> AsyncStream<Update> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: Update.self,
            bufferingPolicy: .bufferingNewest(Self.capacity)
        )
        let key = state.withLock { state in
            state.lastKey += 1
            state.listeners[state.lastKey] = Listener(id: id, continuation: continuation)
            return state.lastKey
        }
        continuation.onTermination = { [weak self] _ in
            self?.state.withLock { $0.listeners[key] = nil }
        }
        return stream
    }
}

public import Foundation
import Synchronization

extension AssetPackManager {
    /// What happens to a pack that is fetched.
    public enum DownloadStatusUpdate: Sendable {
        /// The fetch has begun.
        case began(AssetPack)
        /// It waits: for the network, for a server, or for another process that stages the pack.
        case paused(AssetPack)
        /// Bytes of the archive came. The progress counts them, and its `cancel()` ends the fetch.
        case downloading(AssetPack, Progress)
        /// The pack is staged.
        case finished(AssetPack)
        /// The pack could not be fetched, or the fetch was cancelled.
        case failed(AssetPack, any Error)

        /// The pack that this is about.
        var assetPack: AssetPack {
            switch self {
            case .began(let pack), .paused(let pack), .downloading(let pack, _),
                .finished(let pack), .failed(let pack, _):
                pack
            }
        }

        /// Whether nothing more comes of this fetch.
        var isLast: Bool {
            switch self {
            case .finished, .failed: true
            case .began, .paused, .downloading: false
            }
        }
    }
}

/// Passes updates on to everybody who listens.
///
/// A listener that is far behind loses the oldest updates, never the latest, and holds nobody up.
final class StatusBroadcast: Sendable {
    typealias Update = AssetPackManager.DownloadStatusUpdate

    private struct Listener {
        /// The pack that is listened for; `nil` for all.
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

    /// What happens from now on: to all packs, or to one until its fetch has ended.
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

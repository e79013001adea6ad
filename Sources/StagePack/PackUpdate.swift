public import StageModel
import Synchronization

/// Updates about a pack that is fetched on demand.
///
/// The cases correspond to those of Apple's `AssetPackManager.statusUpdates`.
public enum PackUpdate: Equatable, Sendable {
    /// The fetch has started.
    case began(PackID)
    /// Bytes were received or files were written.
    case downloading(PackID, FetchProgress)
    /// The pack is staged.
    case finished(PackID)
    /// The fetch failed.
    case failed(PackID, PackStoreError)

    /// The pack that the update is about.
    public var id: PackID {
        switch self {
        case .began(let id), .downloading(let id, _), .finished(let id), .failed(let id, _): id
        }
    }
}

/// Distributes updates to all listeners.
///
/// Buffers 64 updates per listener: a slow listener loses the oldest ones and does not delay the sender.
final class UpdateBroadcast: Sendable {
    private let listeners = Mutex<[UInt64: AsyncStream<PackUpdate>.Continuation]>([:])
    private let lastKey = Atomic<UInt64>(0)

    func send(_ update: PackUpdate) {
        for listener in listeners.withLock({ Array($0.values) }) { listener.yield(update) }
    }

    func updates() -> AsyncStream<PackUpdate> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: PackUpdate.self,
            bufferingPolicy: .bufferingNewest(64)
        )
        let key = lastKey.wrappingAdd(1, ordering: .relaxed).newValue
        listeners.withLock { $0[key] = continuation }
        continuation.onTermination = { [weak self] _ in
            self?.listeners.withLock { $0[key] = nil }
        }
        return stream
    }
}

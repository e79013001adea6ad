public import StageModel
import Synchronization

/// What happens to a pack while it is fetched on demand.
///
/// The cases are those of Apple's `AssetPackManager.statusUpdates`.
public enum PackUpdate: Equatable, Sendable {
    /// A fetch has begun.
    case began(PackID)
    /// Bytes have come in or files were written.
    case downloading(PackID, FetchProgress)
    /// The pack is staged.
    case finished(PackID)
    /// The pack could not be fetched.
    case failed(PackID, PackStoreError)

    /// The pack that the update is of.
    public var id: PackID {
        switch self {
        case .began(let id), .downloading(let id, _), .finished(let id), .failed(let id, _): id
        }
    }
}

/// Passes updates on to everybody who listens.
///
/// A slow listener loses the oldest updates it has not seen, never the latest, and holds nobody up.
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

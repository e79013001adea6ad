public import StageModel
import Synchronization

/// A limit on the bytes that were received and not yet processed; transfers that share it pause while it is full.
///
/// A server that is faster than the disk therefore fills no memory: the flow control of TCP or HTTP/2 stops it.
/// A paused transfer does not count as stalled.
public final class ReceiveWindow: Sendable {
    private let count = Atomic<Int>(0)
    private let paused = Atomic(false)
    private let limit: Int

    /// Creates an empty window that is full at `limit` bytes.
    public init(limit: ByteCount) {
        self.limit = Int(limit.rawValue)
    }

    /// Adds bytes that were handed to the consumer.
    public func add(_ bytes: Int) { count.add(bytes, ordering: .relaxed) }

    /// Removes bytes that the consumer has processed; the consumer may call it on any thread.
    public func remove(_ bytes: Int) { count.subtract(bytes, ordering: .relaxed) }

    /// Pauses the transfers in both directions, however few bytes are waiting, or ends the pause.
    public func setPaused(_ isPaused: Bool) { paused.store(isPaused, ordering: .relaxed) }

    /// `true` while ``setPaused(_:)`` pauses the transfers.
    var isPaused: Bool { paused.load(ordering: .relaxed) }

    /// `true` while no more bytes may be received.
    var isFull: Bool { isPaused || count.load(ordering: .relaxed) >= limit }
}

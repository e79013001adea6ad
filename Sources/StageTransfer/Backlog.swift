public import StageModel
import Synchronization

/// What was received and is not yet done with: transfers that share one wait while it is full.
///
/// So a server that is faster than the disk fills no memory: it is told to wait by the flow control of
/// TCP or HTTP/2, and a transfer that waits for its taker does not count as stalled.
public final class Backlog: Sendable {
    private let count = Atomic<Int>(0)
    private let held = Atomic(false)
    private let limit: Int

    /// Creates an empty backlog that is full from so many bytes on.
    public init(limit: ByteCount) {
        self.limit = Int(limit.rawValue)
    }

    /// Adds bytes that a taker is given.
    public func add(_ bytes: Int) { count.add(bytes, ordering: .relaxed) }

    /// Removes bytes that their taker is done with; called by the taker, on any thread.
    public func remove(_ bytes: Int) { count.subtract(bytes, ordering: .relaxed) }

    /// Has transfers wait, in both directions, however little there is to be done with, or wait no longer.
    public func hold(_ isHeld: Bool) { held.store(isHeld, ordering: .relaxed) }

    /// Whether transfers wait for ``hold(_:)``.
    var isHeld: Bool { held.load(ordering: .relaxed) }

    /// Whether nothing more is to come for now.
    var isFull: Bool { isHeld || count.load(ordering: .relaxed) >= limit }
}

public import StageModel
import Synchronization

/// A limit on the bytes that were received and not yet processed; transfers that share it pause while it is full.
///
/// A server that is faster than the disk therefore fills no memory: the flow control of TCP or HTTP/2 stops it.
/// A paused transfer does not count as stalled.
public final class ReceiveWindow: Sendable {
    private struct State {
        let limit: Int
        var count = 0
        var isPaused = false
        /// Functions that are called when the window opens, by the transfers that wait for it.
        var waiters: [ObjectIdentifier: @Sendable () -> Void] = [:]

        var isFull: Bool { isPaused || count >= limit }
    }

    private let state: Mutex<State>

    /// Creates an empty window that is full at `limit` bytes.
    public init(limit: ByteCount) {
        state = Mutex(State(limit: Int(limit.rawValue)))
    }

    /// Adds bytes that were handed to the consumer.
    public func add(_ bytes: Int) { state.withLock { $0.count += bytes } }

    /// Removes bytes that the consumer has processed; the consumer may call it on any thread.
    public func remove(_ bytes: Int) { change { $0.count -= bytes } }

    /// Pauses the transfers in both directions, however few bytes are waiting, or ends the pause.
    public func setPaused(_ isPaused: Bool) { change { $0.isPaused = isPaused } }

    /// `true` while ``setPaused(_:)`` pauses the transfers.
    var isPaused: Bool { state.withLock { $0.isPaused } }

    /// `true` while no more bytes may be received.
    var isFull: Bool { state.withLock { $0.isFull } }

    /// Returns whether bytes may be received; otherwise calls `wake` once that is so, on the thread that opens the
    /// window.
    ///
    /// A transfer waits once: `wake` replaces its earlier one.
    func isOpen(for transfer: AnyObject, orElse wake: @escaping @Sendable () -> Void) -> Bool {
        let key = ObjectIdentifier(transfer)
        return state.withLock { state in
            state.waiters[key] = state.isFull ? wake : nil
            return !state.isFull
        }
    }

    /// Ends the wait of a transfer.
    func stopWaiting(_ transfer: AnyObject) {
        let key = ObjectIdentifier(transfer)
        state.withLock { $0.waiters[key] = nil }
    }

    private func change(_ body: (inout State) -> Void) {
        let waiters = state.withLock { state -> [@Sendable () -> Void] in
            body(&state)
            guard !state.isFull else { return [] }
            defer { state.waiters = [:] }
            return Array(state.waiters.values)
        }
        for wake in waiters { wake() }
    }
}

import DequeModule
import StageControl
import Synchronization

/// Event stream of a client that watches all sessions which are visible to it.
///
/// For a slow client, events without a sequence number, such as progress, are dropped. Before an event with one, such as
/// the end of a task, would be dropped, the stream ends, so that the client notices the loss. The stream then still has the
/// queued events, but none after the dropped one.
final class Watch: Sendable {
    let client: ClientCredentials
    /// Wakes the reader when there may be events.
    let wakes: AsyncStream<Void>
    private let wake: AsyncStream<Void>.Continuation
    private let state = Mutex(State())

    /// Maximum memory of the queued events in bytes: their responses may be large.
    static let maximumBytes = 4 << 20

    private struct State {
        var events: Deque<SessionEvent> = []
        /// Memory of ``events``.
        var bytes = 0
        /// `true` once the stream takes no more events.
        var hasEnded = false

        /// Queues an event; returns `false` if the stream has ended, or ends instead.
        mutating func enqueue(_ event: SessionEvent) -> Bool {
            guard !hasEnded else { return false }
            let size = event.memorySize
            while events.count >= Subscription.limit
                || bytes + size > Watch.maximumBytes && !events.isEmpty
            {
                guard let first = events.firstIndex(where: { $0.sequence == nil }) else {
                    hasEnded = event.sequence != nil
                    return !hasEnded
                }
                bytes -= events.remove(at: first).memorySize
            }
            events.append(event)
            bytes += size
            return true
        }
    }

    init(for client: ClientCredentials) {
        self.client = client
        (wakes, wake) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
    }

    /// Queues an event.
    func enqueue(_ event: SessionEvent) {
        if state.withLock({ $0.enqueue(event) }) { wake.yield() } else { wake.finish() }
    }

    /// Removes and returns the earliest queued event.
    func next() -> SessionEvent? {
        state.withLock { state in
            let event = state.events.popFirst()
            state.bytes -= event?.memorySize ?? 0
            return event
        }
    }

    /// Ends the stream.
    func end() {
        state.withLock { $0.hasEnded = true }
        wake.finish()
    }
}

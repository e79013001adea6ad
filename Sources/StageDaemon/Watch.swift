import DequeModule
import StageControl
import Synchronization

/// Event stream of a client that watches all sessions which are visible to it.
///
/// For a slow client, events without a sequence number, such as progress, are dropped. Before an event with one, such as
/// the end of a task, would be dropped, the stream ends, so that the client notices the loss.
final class Watch: Sendable {
    let client: ClientCredentials
    /// Wakes the reader when there may be events.
    let wakes: AsyncStream<Void>
    private let wake: AsyncStream<Void>.Continuation
    private let events = Mutex(Deque<SessionEvent>())

    init(for client: ClientCredentials) {
        self.client = client
        (wakes, wake) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
    }

    /// Queues an event.
    func enqueue(_ event: SessionEvent) {
        let hasOverflowed = events.withLock { events -> Bool in
            if events.count >= Subscription.limit {
                guard let first = events.firstIndex(where: { $0.sequence == nil }) else {
                    return event.sequence != nil
                }
                events.remove(at: first)
            }
            events.append(event)
            return false
        }
        if hasOverflowed { wake.finish() } else { wake.yield() }
    }

    /// Removes and returns the earliest queued event.
    func next() -> SessionEvent? { events.withLock { $0.popFirst() } }

    /// Ends the stream.
    func end() { wake.finish() }
}

import DequeModule
import StageControl
import Synchronization

/// Event stream of the client attached to a session.
///
/// Durable events are read from the journal once the client has received the earlier ones. Other events are dropped for a
/// slow client, so that the memory for a client that does not read is bounded. A client that has missed events, or has
/// just attached, is sent the current state of the session's tasks.
final class Subscription: Sendable {
    let session: Int64
    /// Wakes the reader when there may be events.
    let wakes: AsyncStream<Void>
    private let wake: AsyncStream<Void>.Continuation
    private let state: Mutex<State>

    private struct State {
        var nonDurable: Deque<SessionEvent> = []
        /// Memory of ``nonDurable``.
        var bytes = 0
        /// `true` until the client is sent the current state of the tasks.
        var hasMissedEvents = true
        var lastReported: Int64?
        var upcoming: ArraySlice<Int64> = []
        var cursor: Int64
        var hasFinished = false
    }

    /// Maximum number of queued non-durable events.
    static let limit = 256
    /// Maximum memory of these events in bytes: their responses may be large.
    static let maximumBytes = 1 << 20

    init(session: Int64, after sequence: Int64) {
        self.session = session
        (wakes, wake) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
        state = Mutex(State(cursor: sequence))
        wake.yield()
    }

    /// Sequence number of the last durable event sent to the client.
    var cursor: Int64 {
        get { state.withLock { $0.cursor } }
        set { state.withLock { $0.cursor = newValue } }
    }

    /// Last waiting task whose current state was sent to the client, while those with higher numbers are still to be sent;
    /// `nil` if there are none.
    var lastReported: Int64? {
        get { state.withLock { $0.lastReported } }
        set { state.withLock { $0.lastReported = newValue } }
    }

    /// The tasks after ``lastReported`` that were found already, in order.
    var upcoming: ArraySlice<Int64> {
        get { state.withLock { $0.upcoming } }
        set { state.withLock { $0.upcoming = newValue } }
    }

    /// Maximum number of tasks in ``upcoming``.
    static let lookahead = 8192

    /// Queues a non-durable event.
    func enqueue(_ event: SessionEvent) {
        state.withLock { state in
            state.nonDurable.append(event)
            state.bytes += event.memorySize
            while state.nonDurable.count > Self.limit
                || state.bytes > Self.maximumBytes && state.nonDurable.count > 1
            {
                state.bytes -= state.nonDurable.removeFirst().memorySize
                state.hasMissedEvents = true
            }
        }
        wake.yield()
    }

    /// Records that an event was dropped, so that the current state of the tasks is sent instead.
    func noteMissedEvents() {
        state.withLock { $0.hasMissedEvents = true }
        wake.yield()
    }

    /// Returns whether the client must be sent the current state of the tasks, and resets this flag.
    func takeMissedEvents() -> Bool {
        state.withLock { state in
            defer { state.hasMissedEvents = false }
            return state.hasMissedEvents
        }
    }

    /// Wakes the reader.
    func wakeUp() { wake.yield() }

    /// Ends the stream.
    func end() { wake.finish() }

    /// Removes and returns the queued non-durable events.
    func takeNonDurable() -> [SessionEvent] {
        state.withLock { state in
            defer {
                state.nonDurable.removeAll()
                state.bytes = 0
            }
            return Array(state.nonDurable)
        }
    }

    /// Notes whether all events were sent and no task is unfinished; returns whether that has just become true.
    func mark(finished: Bool) -> Bool {
        state.withLock { state in
            defer { state.hasFinished = finished }
            return finished && !state.hasFinished
        }
    }
}

import DequeModule
import StageControl
import Synchronization

/// A client that takes the events of a session in.
///
/// Events that are on disk are read from there when the client has taken those before; of the others a
/// slow client misses some. So one that does not read costs a bounded amount of memory.
final class Subscription: Sendable {
    let session: Int64
    /// The token of the launch that the client was started by.
    let launch: String?
    /// Says that there may be something to read.
    let wakes: AsyncStream<Void>
    private let wake: AsyncStream<Void>.Continuation
    private let state: Mutex<State>

    private struct State {
        var passing: Deque<SessionEvent> = []
        var cursor: Int64
        var hasFinished = false
    }

    /// The most passing events that wait for a client that does not read: some 100 KiB of them.
    static let limit = 256

    init(session: Int64, after sequence: Int64, launch: String?) {
        self.session = session
        self.launch = launch
        (wakes, wake) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
        state = Mutex(State(cursor: sequence))
        wake.yield()
    }

    /// The number of the last durable event that the client was told.
    var cursor: Int64 {
        get { state.withLock { $0.cursor } }
        set { state.withLock { $0.cursor = newValue } }
    }

    /// Tells of something that is not kept.
    func pass(_ event: SessionEvent) {
        state.withLock { state in
            if state.passing.count >= Self.limit { state.passing.removeFirst() }
            state.passing.append(event)
        }
        wake.yield()
    }

    /// Says that there is something to read.
    func ring() { wake.yield() }

    /// Ends the stream.
    func end() { wake.finish() }

    /// Takes out what is not kept.
    func takePassing() -> [SessionEvent] {
        state.withLock { state in
            defer { state.passing.removeAll() }
            return Array(state.passing)
        }
    }

    /// Takes note whether all was told and nothing is left to do; returns whether that is news.
    func mark(finished: Bool) -> Bool {
        state.withLock { state in
            defer { state.hasFinished = finished }
            return finished && !state.hasFinished
        }
    }
}

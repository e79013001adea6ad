import StageSystem
import Synchronization

/// Events of the daemon as they come.
///
/// There is one reader: of the asynchronous sequence, or of ``nextEvent()`` on a thread that may block.
/// When the reader's task is cancelled, or the last reference goes, the connection is closed at once.
public final class ControlEvents: AsyncSequence, Sendable {
    /// An event.
    public typealias Element = SessionEvent
    /// Why no more events come.
    public typealias Failure = ControlError

    private struct State: Sendable {
        var body: ControlBody
        var splitter = LineSplitter()
        var lines: [[UInt8]] = []
        var hasEnded = false
    }

    private let connection: ControlConnection
    // Held while a reader waits for the daemon; there is one reader, so nobody waits for the lock.
    private let state: Mutex<State>

    init(_ connection: ControlConnection, _ body: ControlBody) {
        self.connection = connection
        state = Mutex(State(body: body))
    }

    deinit { connection.close() }

    /// The path of the daemon's socket.
    public var path: String { connection.path }

    /// Ends the stream: whoever waits for an event is told that the daemon is lost.
    public func close() { connection.close() }

    /// Waits for the next event, blocking the thread; `nil` once the daemon has ended the stream.
    ///
    /// - Throws: ``ControlError/lost(_:)`` if the connection broke, or nothing came for three heartbeats.
    public func nextEvent() throws(ControlError) -> SessionEvent? {
        try state.withLock { state throws(ControlError) in
            while state.lines.isEmpty {
                guard !state.hasEnded else { return nil }
                if let bytes = try state.body.read() {
                    state.lines = try state.splitter.read(bytes)
                    state.lines.reverse()
                } else {
                    state.hasEnded = true
                    let isWhole = state.splitter.remainder.isEmpty
                    guard isWhole else { throw .malformed("its last line has no end") }
                }
            }
            return try ControlConnection.decode(SessionEvent.self, state.lines.removeLast())
        }
    }

    /// Reads the events one by one.
    public struct AsyncIterator: AsyncIteratorProtocol {
        let events: ControlEvents

        /// Waits for the next event; `nil` at the end of the stream, and once the task is cancelled.
        public mutating func next() async throws(ControlError) -> SessionEvent? {
            let events = events
            let result = await withTaskCancellationHandler {
                await withBlockingThread {
                    Result { () throws(ControlError) in try events.nextEvent() }
                }
            } onCancel: {
                events.close()
            }
            guard !Task.isCancelled else { return nil }
            return try result.get()
        }

        /// Waits for the next event; `nil` at the end of the stream, and once the task is cancelled.
        public mutating func next(
            isolation actor: isolated (any Actor)?
        ) async throws(ControlError) -> SessionEvent? {
            try await next()
        }
    }

    /// Creates the reader.
    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(events: self) }
}

import StageSystem
import Synchronization

/// Event stream from the daemon.
///
/// It has one reader, which uses either the asynchronous sequence, or ``nextEvent()`` on a thread that may block. The
/// connection closes when the reader's task is cancelled, or when the last reference is released.
package final class ControlEvents: AsyncSequence, Sendable {
    /// Event of a session.
    package typealias Element = SessionEvent
    /// Error that ends the stream.
    package typealias Failure = ControlError

    private struct State: Sendable {
        var body: ControlResponse
        var splitter = LineSplitter()
        var lines: [[UInt8]] = []
        var hasEnded = false
    }

    private let connection: ControlConnection
    // Locked while the reader waits for the daemon. There is only one reader, so no other thread waits for the lock.
    private let state: Mutex<State>

    init(_ connection: ControlConnection, body: ControlResponse) {
        self.connection = connection
        state = Mutex(State(body: body))
    }

    deinit { connection.close() }

    /// Path of the daemon's socket.
    package var path: String { connection.path }

    /// Ends the stream; a waiting reader gets ``ControlError/lost(_:after:)``.
    package func close() { connection.close() }

    /// Waits for the next event, blocking the thread; returns `nil` after the daemon has ended the stream.
    ///
    /// - Throws: ``ControlError/lost(_:after:)`` if the connection broke, or three heartbeats were missed.
    package func nextEvent() throws(ControlError) -> SessionEvent? {
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
            return try ControlConnection.decode(SessionEvent.self, from: state.lines.removeLast())
        }
    }

    /// Asynchronous reader of the events.
    package struct AsyncIterator: AsyncIteratorProtocol {
        let events: ControlEvents

        /// Waits for the next event; returns `nil` at the end of the stream, and after the task was cancelled.
        package mutating func next() async throws(ControlError) -> SessionEvent? {
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

        /// Waits for the next event; returns `nil` at the end of the stream, and after the task was cancelled.
        package mutating func next(
            isolation actor: isolated (any Actor)?
        ) async throws(ControlError) -> SessionEvent? {
            try await next()
        }
    }

    /// Creates the reader.
    package func makeAsyncIterator() -> AsyncIterator { AsyncIterator(events: self) }
}

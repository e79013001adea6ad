public import Foundation
public import FoundationNetworking
public import StageControl
import Synchronization

/// Something that happened in a session, for code that has no delegate.
///
/// Unchecked, since what an `URLAuthenticationChallenge` has does not change.
@nonexhaustive
public enum BackgroundTransferEvent: @unchecked Sendable {
    /// So many bytes were received or sent in all, of so many; -1 as long as nobody has said.
    case progress(URLSessionTask, Int64, expected: Int64)
    /// A download that was interrupted goes on.
    case resumed(URLSessionDownloadTask, offset: Int64, expected: Int64)
    /// A task waits for this, or for nothing any more.
    case waiting(URLSessionTask, [Hold])
    /// A server wants to know who asks: `answer` is to be called once, at any time.
    case challenged(
        URLSessionTask,
        URLAuthenticationChallenge,
        answer: @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    )
    /// A download is at this place, and is to be moved away before the next event is asked for.
    case finishedDownloading(URLSessionDownloadTask, URL)
    /// A server has answered an upload with this, up to 64 KiB of it.
    case answered(URLSessionDataTask, Data)
    /// A task has ended, well if there is no error.
    case completed(URLSessionTask, URLSessionTaskMetrics?, URLError?)
    /// Everything that there was to tell has been told, and nothing is under way.
    case finishedEvents
}

/// The events of a session without a delegate, for one reader.
///
/// An event counts as taken in when the reader asks for the next one; those that were not are delivered
/// again when the session is made the next time. The sequence ends with the session.
public struct BackgroundTransferEvents: AsyncSequence, Sendable {
    /// An event.
    public typealias Element = BackgroundTransferEvent
    /// It does not fail: a daemon that is not there is waited for.
    public typealias Failure = Never

    let stream: AsyncStream<EventRelay.Delivery>
    let readers: EventReaders

    /// Reads the events one by one.
    public struct AsyncIterator: AsyncIteratorProtocol {
        var iterator: AsyncStream<EventRelay.Delivery>.Iterator
        let reading: EventReaders.Reading
        var last: EventRelay.Delivery?

        /// Waits for the next event; the one before counts as taken in.
        public mutating func next() async -> BackgroundTransferEvent? {
            last?.done?()
            last = await iterator.next(isolation: #isolation)
            return last?.event
        }

        /// Waits for the next event; the one before counts as taken in.
        public mutating func next(
            isolation actor: isolated (any Actor)?
        ) async -> BackgroundTransferEvent? {
            last?.done?()
            last = await iterator.next(isolation: actor)
            return last?.event
        }
    }

    /// Creates the reader.
    public func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(iterator: stream.makeAsyncIterator(), reading: readers.begin())
    }
}

/// Keeps the events of a session without a delegate until they are read.
final class EventRelay: Sendable {
    /// An event, and what to do once it was taken in.
    struct Delivery: Sendable {
        var event: BackgroundTransferEvent
        var done: (@Sendable () -> Void)?
    }

    /// The events.
    let events: BackgroundTransferEvents
    private let continuation: AsyncStream<Delivery>.Continuation
    private let readers = EventReaders()

    init() {
        let (stream, continuation) = AsyncStream.makeStream(of: Delivery.self)
        events = BackgroundTransferEvents(stream: stream, readers: readers)
        self.continuation = continuation
    }

    /// Adds an event; `done` is called once it was taken in.
    func add(_ event: BackgroundTransferEvent, done: (@Sendable () -> Void)? = nil) {
        guard let done else {
            continuation.yield(Delivery(event: event))
            return
        }
        readers.add()
        let whole = { @Sendable [readers] in
            done()
            readers.finish()
        }
        continuation.yield(Delivery(event: event, done: whole))
    }

    /// Whether no reader has yet to take an event in; else calls `body` once that is so.
    func isRead(orElse body: @escaping @Sendable () -> Void) -> Bool {
        readers.isIdle(orElse: body)
    }

    /// Ends the sequence.
    func finish() { continuation.finish() }
}

/// The readers of a session's events, and the number of events that they have yet to take in.
final class EventReaders: Sendable {
    /// A reader, as long as it may ask for events.
    final class Reading: Sendable {
        private let readers: EventReaders

        fileprivate init(_ readers: EventReaders) { self.readers = readers }

        deinit { readers.change { $0.readers -= 1 } }
    }

    fileprivate struct State {
        var readers = 0
        var pending = 0
        var waiters: [@Sendable () -> Void] = []

        /// Whether no event is going to be taken in.
        var isIdle: Bool { pending == 0 || readers == 0 }
    }

    private let state = Mutex(State())

    /// Begins to read.
    func begin() -> Reading {
        change { $0.readers += 1 }
        return Reading(self)
    }

    /// Adds an event that is to be taken in.
    func add() { change { $0.pending += 1 } }

    /// Takes in that an event was taken in.
    func finish() { change { $0.pending -= 1 } }

    /// Returns whether no event is going to be taken in; else calls `body` once that is so.
    func isIdle(orElse body: @escaping @Sendable () -> Void) -> Bool {
        state.withLock { state in
            if !state.isIdle { state.waiters.append(body) }
            return state.isIdle
        }
    }

    fileprivate func change(_ body: (inout State) -> Void) {
        let waiters = state.withLock { state -> [@Sendable () -> Void] in
            body(&state)
            guard state.isIdle else { return [] }
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter() }
    }
}

extension URLSession {
    /// The events of a session that was made without a delegate; empty for one with a delegate, which is
    /// told instead.
    ///
    /// Not of Apple's class.
    public var events: BackgroundTransferEvents {
        if let relay { return relay.events }
        let empty = EventRelay()
        empty.finish()
        return empty.events
    }
}

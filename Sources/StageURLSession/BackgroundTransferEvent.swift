public import Foundation
public import FoundationNetworking
public import StageControl
import Synchronization

/// An event of a session without a delegate.
///
/// Unchecked, since the properties of a `URLAuthenticationChallenge` do not change.
@nonexhaustive
public enum BackgroundTransferEvent: @unchecked Sendable {
    /// Total number of bytes received or sent so far, and expected; -1 while the size is unknown.
    case progress(URLSessionTask, transferred: Int64, expected: Int64)
    /// An interrupted download was resumed.
    case resumed(URLSessionDownloadTask, offset: Int64, expected: Int64)
    /// A task waits for these reasons; an empty array ends the wait.
    case waiting(URLSessionTask, [PendingReason])
    /// A server requires authentication: call `answer` once, at any time.
    case challenged(
        URLSessionTask,
        URLAuthenticationChallenge,
        answer: @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    )
    /// A download is in this file, which must be moved away before the next event is requested.
    case finishedDownloading(URLSessionDownloadTask, URL)
    /// Body of a server's response to an upload, up to 64 KiB of it.
    case receivedBody(URLSessionDataTask, Data)
    /// A task has ended, successfully if there is no error.
    case completed(URLSessionTask, URLSessionTaskMetrics?, URLError?)
    /// All events were delivered, and no task is running.
    case finishedEvents
}

/// The events of a session without a delegate, for one reader.
///
/// An event counts as handled when the reader requests the next one; unhandled events are delivered again when the
/// session is created the next time. The sequence ends with the session. Where the reading task is cancelled, the
/// sequence ends for it, and a new reader receives the events that follow.
///
/// A reader that is late gets only the latest events about the progress, the reasons to wait and the resumption of a
/// task, so that few events are kept for it.
public struct BackgroundTransferEvents: AsyncSequence, Sendable {
    /// An event.
    public typealias Element = BackgroundTransferEvent
    /// The sequence never fails: without a daemon it waits for one.
    public typealias Failure = Never

    let relay: EventRelay

    /// Reads the events one by one.
    public struct AsyncIterator: AsyncIteratorProtocol {
        let relay: EventRelay
        let reading: EventReaders.Reading
        var last: EventRelay.Delivery?

        /// Waits for the next event, and marks the previous one as handled.
        ///
        /// - Returns: The event; `nil` after the end of the session, or if the calling task is cancelled.
        public mutating func next(
            isolation actor: isolated (any Actor)? = #isolation
        ) async -> BackgroundTransferEvent? {
            last?.done?()
            last = nil
            reading.setHandling(false)
            last = await relay.next(isolation: actor)
            reading.setHandling(last?.done != nil)
            return last?.event
        }
    }

    /// Creates the reader.
    public func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(relay: relay, reading: relay.readers.begin())
    }
}

/// Queue of the events of a session without a delegate.
final class EventRelay: Sendable {
    /// An event, and the function to call once it was handled.
    struct Delivery: Sendable {
        var event: BackgroundTransferEvent
        var done: (@Sendable () -> Void)?
    }

    private typealias Waiter = CheckedContinuation<Delivery?, Never>

    private struct State {
        var backlog = EventBuffer()
        var waiters: [(key: Int, waiter: Waiter)] = []
        var lastKey = 0
        var isFinished = false
    }

    let readers = EventReaders()
    private let state = Mutex(State())

    /// The events as a sequence.
    var events: BackgroundTransferEvents { BackgroundTransferEvents(relay: self) }

    /// Adds an event; `done` is called once it was handled.
    func add(_ event: BackgroundTransferEvent, done: (@Sendable () -> Void)? = nil) {
        guard let done else { return add(Delivery(event: event)) }
        readers.add()
        add(
            Delivery(event: event) { [readers] in
                done()
                readers.finish()
            }
        )
    }

    private func add(_ delivery: Delivery) {
        let waiter = state.withLock { state -> Waiter? in
            guard state.waiters.isEmpty else { return state.waiters.removeFirst().waiter }
            if !state.isFinished { state.backlog.add(delivery) }
            return nil
        }
        waiter?.resume(returning: delivery)
    }

    /// Waits for the next event; returns `nil` at the end, or if the calling task is cancelled, which loses no event.
    func next(isolation actor: isolated (any Actor)?) async -> Delivery? {
        let key = state.withLock { state in
            state.lastKey += 1
            return state.lastKey
        }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let known = state.withLock { state -> Delivery?? in
                    if Task.isCancelled { return .some(nil) }
                    if let next = state.backlog.take() { return next }
                    if state.isFinished { return .some(nil) }
                    state.waiters.append((key, continuation))
                    return nil
                }
                if let known { continuation.resume(returning: known) }
            }
        } onCancel: {
            let waiter = state.withLock { state in
                state.waiters.firstIndex { $0.key == key }
                    .map { state.waiters.remove(at: $0).waiter }
            }
            waiter?.resume(returning: nil)
        }
    }

    /// Returns whether all events are handled or have no reader; otherwise calls `body` once that is so.
    func isRead(orElse body: @escaping @Sendable () -> Void) -> Bool {
        readers.isIdle(orElse: body)
    }

    /// Ends the sequence.
    func finish() {
        let waiters = state.withLock { state in
            state.isFinished = true
            defer { state.waiters = [] }
            return state.waiters
        }
        for (_, waiter) in waiters { waiter.resume(returning: nil) }
    }
}

/// Counts the readers of a session's events, and the events that they have not handled yet.
final class EventReaders: Sendable {
    /// A reader, for as long as it may request events.
    final class Reading: Sendable {
        private let readers: EventReaders
        private let isHandling = Mutex(false)

        fileprivate init(_ readers: EventReaders) { self.readers = readers }

        /// Sets whether the reader handles an event that it has not marked as handled.
        fileprivate func setHandling(_ value: Bool) { isHandling.withLock { $0 = value } }

        deinit {
            // An event whose reader left its loop is delivered again with the next session.
            let left = isHandling.withLock { $0 ? 1 : 0 }
            readers.change {
                $0.readers -= 1
                $0.pending -= left
            }
        }
    }

    fileprivate struct State {
        var readers = 0
        var pending = 0
        var waiters: [@Sendable () -> Void] = []

        /// `true` if all events are handled, or no reader is left to handle them.
        var isIdle: Bool { pending == 0 || readers == 0 }
    }

    private let state = Mutex(State())

    /// Adds a reader.
    func begin() -> Reading {
        change { $0.readers += 1 }
        return Reading(self)
    }

    /// Adds an event that has to be handled.
    func add() { change { $0.pending += 1 } }

    /// Counts an event as handled.
    func finish() { change { $0.pending -= 1 } }

    /// Returns whether all events are handled or have no reader; otherwise calls `body` once that is so.
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
    /// The events of a background session that was created without a delegate.
    ///
    /// Empty for one with a delegate, which receives them instead, and for a session in this process, whose tasks have
    /// completion handlers, `async` calls and delegates.
    ///
    /// Not part of Apple's class.
    public var events: BackgroundTransferEvents {
        if let relay { return relay.events }
        let empty = EventRelay()
        empty.finish()
        return empty.events
    }
}

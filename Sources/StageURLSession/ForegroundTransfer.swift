import Foundation
import FoundationNetworking
import StageModel
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// Transfer of a task of a session in this process: its body, the receiver of its response, and its control.
final class ForegroundTransfer: Sendable {
    /// Completion handler of a task whose response is delivered in memory.
    typealias DataHandler = @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    /// Completion handler of a task whose response is delivered as a file.
    typealias FileHandler = @Sendable (URL?, URLResponse?, (any Error)?) -> Void

    /// Source of a request's body.
    enum Body: Sendable {
        case none
        case data(Data)
        case file(URL)
        /// The request's stream, or one that the delegate provides.
        case stream

        /// Returns the body of a data or download task's request.
        static func of(_ request: URLRequest) -> Body {
            if request.httpBodyStream != nil { return .stream }
            return request.hasBody ? .data(request.httpBody ?? Data()) : .none
        }
    }

    /// Receiver of the response.
    enum Receiver: Sendable {
        case delegate
        case data(DataHandler)
        case file(FileHandler)
        case bytes(ResponseBytes)

        /// Delivers the end of a task without content; the session notifies a delegate itself.
        func end(_ error: (any Error)?, response: URLResponse?) {
            switch self {
            case .delegate: break
            case .data(let handler): handler(nil, response, error)
            case .file(let handler): handler(nil, response, error)
            case .bytes(let bytes): bytes.end(error)
            }
        }
    }

    fileprivate struct State {
        var hasBegun = false
        var isPaused = false
        var isCancelled = false
        /// Cancels the task's work.
        var cancelWork: (@Sendable () -> Void)?
        /// Cancels the attempt that a pause interrupts.
        var interrupt: (@Sendable () -> Void)?
        var wasInterrupted = false
        /// `true` once the session's time limit for the task has passed.
        var isOutOfTime = false
        var waiting: [CheckedContinuation<Void, Never>] = []
        /// The download task that a data task has become.
        var successor: URLSessionDownloadTask?
        /// Receiver of the response, until the task has ended.
        var receiver: Receiver
        /// The bytes of a stream, which can be read only once.
        var openedBody: RequestBody?
    }

    let body: Body
    /// `true` if the delegate receives data, files and the end.
    let notifiesDelegate: Bool
    /// The partial file of an earlier download of a session in this process.
    let resumed: PartialDownload?
    /// Limit on the bytes that were received and not yet delivered; it pauses the transfer while the task is
    /// suspended.
    let receiveWindow: ReceiveWindow
    private let state: Mutex<State>

    init(_ receiver: Receiver, body: Body = .none, resumed: PartialDownload? = nil) {
        notifiesDelegate = if case .delegate = receiver { true } else { false }
        receiveWindow =
            if case .bytes(let bytes) = receiver { bytes.receiveWindow } else {
                ReceiveWindow(limit: .mebibytes(1))
            }
        state = Mutex(State(receiver: receiver))
        self.body = body
        self.resumed = resumed
    }

    /// Receiver of the response; the delegate after ``release()``.
    var receiver: Receiver { state.withLock { $0.receiver } }

    /// The bytes of a stream, once they were read.
    var openedBody: RequestBody? {
        get { state.withLock { $0.openedBody } }
        set { state.withLock { $0.openedBody = newValue } }
    }

    /// Releases all objects of the application after the end of the task.
    func release() {
        let released = state.withLock { state in
            defer { (state.receiver, state.successor, state.openedBody) = (.delegate, nil, nil) }
            return (state.receiver, state.successor, state.openedBody)
        }
        withExtendedLifetime(released) {}
    }

    /// The download task that the data task has become, if it has.
    var successor: URLSessionDownloadTask? { state.withLock { $0.successor } }

    /// Records that the data task has become a download task.
    func become(_ download: URLSessionDownloadTask) { state.withLock { $0.successor = download } }

    var isPaused: Bool { state.withLock { $0.isPaused } }

    /// Records that the task has begun; returns whether this is the first time.
    func begin() -> Bool {
        state.withLock { state in
            defer { state.hasBegun = true }
            return !state.hasBegun
        }
    }

    /// Pauses or resumes the transfer, as `isPaused` says.
    func update(isPaused: () -> Bool) {
        let (waiting, interrupt) = state.withLock { state in
            state.isPaused = isPaused()
            receiveWindow.setPaused(state.isPaused)
            return (state.takeWaiting(), state.isPaused ? state.takeInterrupt() : nil)
        }
        interrupt?()
        for continuation in waiting { continuation.resume() }
    }

    /// Cancels the task's work.
    func cancel() {
        let (cancel, waiting) = state.withLock { state in
            state.isCancelled = true
            return (state.cancelWork, state.takeWaiting())
        }
        cancel?()
        for continuation in waiting { continuation.resume() }
    }

    /// `true` once the session's time limit for the task has passed.
    var isOutOfTime: Bool { state.withLock { $0.isOutOfTime } }

    /// Records that the session's time limit for the task has passed.
    func expire() { state.withLock { $0.isOutOfTime = true } }

    /// Sets the function that cancels the task's work.
    func holdWork(_ cancel: @escaping @Sendable () -> Void) {
        let isCancelled = state.withLock { state in
            state.cancelWork = cancel
            return state.isCancelled
        }
        if isCancelled { cancel() }
    }

    /// Sets the function that a pause calls to interrupt the current attempt.
    func holdAttempt(_ interrupt: (@Sendable () -> Void)?) {
        let interruptNow = state.withLock { state in
            state.interrupt = interrupt
            return state.isPaused ? state.takeInterrupt() : nil
        }
        interruptNow?()
    }

    /// Returns whether a pause has interrupted the last attempt.
    func wasInterrupted() -> Bool {
        state.withLock { state in
            defer { state.wasInterrupted = false }
            return state.wasInterrupted
        }
    }

    /// Waits until the transfer may continue, or its work is cancelled.
    func waitWhilePaused() async {
        await withTaskCancellationHandler {
            while !Task.isCancelled, isPaused {
                await withCheckedContinuation { continuation in
                    let waits = state.withLock { state in
                        guard state.isPaused, !Task.isCancelled else { return false }
                        state.waiting.append(continuation)
                        return true
                    }
                    if !waits { continuation.resume() }
                }
            }
        } onCancel: {
            for continuation in state.withLock({ $0.takeWaiting() }) { continuation.resume() }
        }
    }
}

extension ForegroundTransfer.State {
    fileprivate mutating func takeInterrupt() -> (@Sendable () -> Void)? {
        guard let interrupt else { return nil }
        self.interrupt = nil
        wasInterrupted = true
        return interrupt
    }

    fileprivate mutating func takeWaiting() -> [CheckedContinuation<Void, Never>] {
        // Callers that must still wait check that and wait again.
        defer { waiting = [] }
        return waiting
    }
}

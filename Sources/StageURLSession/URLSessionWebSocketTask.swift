public import Foundation
import StageControl
import StageModel
import Synchronization

/// A WebSocket connection of a session in this process (RFC 6455, RFC 7692), in the shape of Apple's class.
///
/// Calls before the opening handshake is made wait for it. Their handlers are called on the session's delegate queue,
/// each exactly once: with the task's error, if the connection ends before. Messages are read when they are asked for,
/// one of them and one in the connection ahead, so a server is held up by an application that does not ask; pongs and
/// the server's close frame come after the messages before them.
///
/// The session holds a task that was resumed until its connection has ended: `cancel` ends it, and so does
/// ``URLSession/invalidateAndCancel()``. Redirects are not followed, and no delegate is asked for credentials.
///
/// Unchecked, since there is nothing in it but constants and locks; so must be what a subclass adds.
open class URLSessionWebSocketTask: URLSessionTask, @unchecked Sendable {
    let calls = Mutex(WebSocketCalls())
    /// The messages, pings and close frame to send, in order.
    let outputs = AsyncStream.makeStream(of: WebSocketCalls.Output.self)
    /// A value for each message that was asked for.
    let demands = AsyncStream.makeStream(of: Void.self)
    /// The time after which the connection is given up.
    let limits = AsyncStream.makeStream(of: Duration.self)
    private let settings = Mutex(Settings())

    private struct Settings {
        var priority = URLSessionTask.defaultPriority
        var description: String?
        var earliestBegin: Date?
        var expectedToReceive = NSURLSessionTransferSizeUnknown
        var expectedToSend = NSURLSessionTransferSizeUnknown
    }

    /// Creates a task for a subclass that stands in for one in tests; it belongs to no session and connects nowhere.
    public override init() { super.init() }

    init(_ record: TaskRecord, session: URLSession) {
        super.init(record, session: session, transfer: nil)
    }

    /// Most bytes of a message that is received, fragments together and decompressed; by default 1 MiB.
    ///
    /// A larger message ends the task with `POSIXError.EMSGSIZE`. Changes after ``resume()`` are of no effect.
    open var maximumMessageSize: Int {
        get { calls.withLock { $0.maximumMessageSize } }
        set { calls.withLock { $0.maximumMessageSize = newValue } }
    }

    /// Code of the close frame that has ended the connection, the server's or that of ``cancel(with:reason:)``;
    /// ``CloseCode/invalid`` before, and where there was none.
    open var closeCode: CloseCode { calls.withLock { $0.closeCode } }

    /// Reason of that close frame.
    open var closeReason: Data? { calls.withLock { $0.closeReason } }

    /// Sends a message after those before it, and calls `completionHandler` when the system has taken it.
    ///
    /// Messages that wait are held in memory.
    open func send(
        _ message: Message,
        completionHandler: @escaping @Sendable ((any Error)?) -> Void
    ) {
        let failure = calls.withLock { calls -> (any Error)? in
            guard let call = calls.addSend(of: message, completionHandler) else {
                return calls.failure
            }
            outputs.continuation.yield(.message(call: call))
            return nil
        }
        if let failure { answer { completionHandler(failure) } }
    }

    /// Sends a message after those before it, and returns when the system has taken it.
    open func send(_ message: Message) async throws {
        try await withCheckedThrowingContinuation {
            (continuation: CheckedContinuation<Void, any Error>) in
            send(message) { error in
                if let error {
                    continuation.resume(throwing: error)
                } else {
                    continuation.resume()
                }
            }
        }
    }

    /// Calls `completionHandler` with the next message that no call has received.
    open func receive(
        completionHandler: @escaping @Sendable (Result<Message, any Error>) -> Void
    ) {
        let failure = calls.withLock { calls -> (any Error)? in
            guard calls.addReceiver(completionHandler) else { return calls.failure }
            demands.continuation.yield()
            return nil
        }
        if let failure { answer { completionHandler(.failure(failure)) } }
    }

    /// Waits for the next message that no call has received.
    open func receive() async throws -> Message {
        try await withCheckedThrowingContinuation { continuation in
            receive { continuation.resume(with: $0) }
        }
    }

    /// Sends a ping after the messages before it, and calls `pongReceiveHandler` when its pong, or that of a later ping,
    /// has come; handlers are called in the order of their pings.
    open func sendPing(pongReceiveHandler: @escaping @Sendable ((any Error)?) -> Void) {
        let failure = calls.withLock { calls -> (any Error)? in
            guard let call = calls.addPing(pongReceiveHandler) else { return calls.failure }
            outputs.continuation.yield(.ping(call: call))
            return nil
        }
        if let failure { answer { pongReceiveHandler(failure) } }
    }

    /// Opens the connection; a new task is suspended once.
    open override func resume() {
        let begins = calls.withLock { calls in
            guard !calls.hasBegun, record.withLock({ $0.resume() }) else { return false }
            calls.hasBegun = true
            return true
        }
        if begins { begin() }
    }

    /// Keeps a task that was not resumed from opening its connection; an open connection stays as it is.
    open override func suspend() {
        calls.withLock { calls in
            guard !calls.hasBegun else { return }
            record.withLock { _ = $0.suspend() }
        }
    }

    /// Sends a close frame without a code where nothing else is being sent, and ends the task with
    /// `URLError.cancelled`.
    ///
    /// Messages that were not sent are not sent any more. The connection is closed when the server has answered, and
    /// after 5 seconds in any case.
    open override func cancel() {
        guard record.withLock({ $0.cancel(producingResumeData: false) }) else { return }
        close(with: nil)
    }

    /// Sends a close frame after the messages before it, and ends the task when the server has answered, or 5 seconds
    /// later.
    ///
    /// Calls that wait for the server fail, and so do those after this one. The delegate is told of the server's close
    /// frame, and of the end of the task without an error. A task whose connection is not open ends with
    /// `URLError.cancelled`.
    open func cancel(with closeCode: CloseCode, reason: Data?) {
        guard record.withLock({ $0.cancel(producingResumeData: false) }) else { return }
        close(with: (closeCode, reason))
    }

    // The daemon knows nothing of the task, so these are kept here.

    /// Kept for the application; connections are not ordered.
    open override var priority: Float {
        get { settings.withLock { $0.priority } }
        set { settings.withLock { $0.priority = min(max(newValue, 0), 1) } }
    }

    /// A text of the application's, kept with this object.
    open override var taskDescription: String? {
        get { settings.withLock { $0.description } }
        set { settings.withLock { $0.description = newValue } }
    }

    /// Kept for the application, and of no effect, as in Apple's sessions that are not in the background.
    open override var earliestBeginDate: Date? {
        get { settings.withLock { $0.earliestBegin } }
        set { settings.withLock { $0.earliestBegin = newValue } }
    }

    /// Kept for the application, and of no effect.
    open override var countOfBytesClientExpectsToReceive: Int64 {
        get { settings.withLock { $0.expectedToReceive } }
        set { settings.withLock { $0.expectedToReceive = newValue } }
    }

    /// Kept for the application, and of no effect.
    open override var countOfBytesClientExpectsToSend: Int64 {
        get { settings.withLock { $0.expectedToSend } }
        set { settings.withLock { $0.expectedToSend = newValue } }
    }
}

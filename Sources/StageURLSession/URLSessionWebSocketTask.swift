public import Foundation
import StageControl
import StageModel
import Synchronization

/// A WebSocket connection of a session in this process (RFC 6455, RFC 7692), with the interface of Apple's class.
///
/// Calls before the opening handshake has finished wait for it. Their handlers are called on the session's delegate
/// queue, each exactly once: with the task's error, if the connection ends before. A message is read for each receive
/// call, with one message of lookahead here and one in the connection, so the server has to wait for an application
/// that does not receive; pongs and the server's close frame are handled after the messages before them.
///
/// The session retains a resumed task until its connection has ended: `cancel` ends it, and so does
/// ``URLSession/invalidateAndCancel()``. Redirects are not followed, and no delegate is asked for credentials.
///
/// Unchecked, since it contains only constants and locks; subclasses must do the same.
open class URLSessionWebSocketTask: URLSessionTask, @unchecked Sendable {
    let calls = Mutex(WebSocketCalls())
    /// Messages, pings and close frame to send, in order.
    let outputs = AsyncStream.makeStream(of: WebSocketCalls.Output.self)
    /// One value for each receive call.
    let demands = AsyncStream.makeStream(of: Void.self)
    /// Times after which the connection is abandoned; the first one to pass counts.
    let limits = AsyncStream.makeStream(of: Duration.self)
    private let settings = Mutex(Settings())

    private struct Settings {
        var priority = URLSessionTask.defaultPriority
        var description: String?
        var earliestBegin: Date?
        var expectedToReceive = NSURLSessionTransferSizeUnknown
        var expectedToSend = NSURLSessionTransferSizeUnknown
    }

    /// Creates a task for a subclass that replaces one in tests; it belongs to no session and connects nowhere.
    public override init() { super.init() }

    init(_ record: ClientTaskState, session: URLSession) {
        super.init(record, session: session, transfer: nil)
    }

    /// Maximum size of a received message in bytes, fragments together and decompressed; by default 1 MiB.
    ///
    /// A larger message ends the task with `POSIXError.EMSGSIZE`. Changes after ``resume()`` have no effect.
    open var maximumMessageSize: Int {
        get { calls.withLock { $0.maximumMessageSize } }
        set { calls.withLock { $0.maximumMessageSize = newValue } }
    }

    /// Code of the close frame that has ended the connection, the server's or that of ``cancel(with:reason:)``;
    /// ``CloseCode/invalid`` before, and if there was none.
    open var closeCode: CloseCode { calls.withLock { $0.closeCode } }

    /// Reason of that close frame.
    open var closeReason: Data? { calls.withLock { $0.closeReason } }

    /// Sends a message after the earlier ones, and calls `completionHandler` when the kernel has accepted it.
    ///
    /// Waiting messages are kept in memory.
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

    /// Sends a message after the earlier ones, and returns when the kernel has accepted it.
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

    /// Calls `completionHandler` with the next message that no other call has received.
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

    /// Waits for the next message that no other call has received.
    open func receive() async throws -> Message {
        try await withCheckedThrowingContinuation { continuation in
            receive { continuation.resume(with: $0) }
        }
    }

    /// Sends a ping after the earlier messages, and calls `pongReceiveHandler` when its pong, or that of a later
    /// ping, has arrived; handlers are called in the order of their pings.
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

    /// Keeps a task that was not resumed from opening its connection; no effect on an open connection.
    open override func suspend() {
        calls.withLock { calls in
            guard !calls.hasBegun else { return }
            record.withLock { _ = $0.suspend() }
        }
    }

    /// Sends a close frame without a code unless another frame is being sent, and ends the task with
    /// `URLError.cancelled`.
    ///
    /// Unsent messages are discarded. The connection is closed when the server has responded, or after 5 seconds; after
    /// ``cancel(with:reason:)`` it is closed at once.
    open override func cancel() {
        if noteCancellation(.atOnce) { close(with: nil) }
    }

    /// Sends a close frame after the earlier messages, and ends the task when the server has responded, or 5 seconds
    /// later.
    ///
    /// Calls that wait for the server fail, and so do later ones. The delegate receives the server's close frame, and
    /// then the end of the task without an error. A task whose connection is not open ends with `URLError.cancelled`,
    /// and so does one for which ``cancel()`` is called meanwhile.
    open func cancel(with closeCode: CloseCode, reason: Data?) {
        if noteCancellation(.afterMessages) { close(with: (closeCode, reason)) }
    }

    /// Records that the application cancels the task; returns `false` if that changes nothing.
    private func noteCancellation(_ cancellation: WebSocketCalls.Cancellation) -> Bool {
        calls.withLock { calls in
            guard !record.withLock({ $0.hasEnded }), calls.note(cancellation) else { return false }
            record.withLock { _ = $0.cancel(producingResumeData: false) }
            return true
        }
    }

    // The daemon does not know the task, so these properties are stored here.

    /// Stored for the application; connections have no priority.
    open override var priority: Float {
        get { settings.withLock { $0.priority } }
        set { settings.withLock { $0.priority = min(max(newValue, 0), 1) } }
    }

    /// A description set by the application, stored with this object.
    open override var taskDescription: String? {
        get { settings.withLock { $0.description } }
        set { settings.withLock { $0.description = newValue } }
    }

    /// Stored for the application, without effect, as in Apple's sessions that are not in the background.
    open override var earliestBeginDate: Date? {
        get { settings.withLock { $0.earliestBegin } }
        set { settings.withLock { $0.earliestBegin = newValue } }
    }

    /// Stored for the application, without effect.
    open override var countOfBytesClientExpectsToReceive: Int64 {
        get { settings.withLock { $0.expectedToReceive } }
        set { settings.withLock { $0.expectedToReceive = newValue } }
    }

    /// Stored for the application, without effect.
    open override var countOfBytesClientExpectsToSend: Int64 {
        get { settings.withLock { $0.expectedToSend } }
        set { settings.withLock { $0.expectedToSend = newValue } }
    }
}

import Foundation
import StageWebSocketClient

/// Pending calls of an application on a WebSocket task, and the state of its connection.
///
/// A state machine without I/O. A function that returns handlers removes them, so that each is called once.
struct WebSocketCalls {
    typealias Completion = @Sendable ((any Error)?) -> Void
    typealias Receiver = @Sendable (Result<URLSessionWebSocketTask.Message, any Error>) -> Void

    /// A message, ping or close frame to send.
    enum Output: Sendable {
        case message(call: Int)
        case ping(call: Int)
        case close(code: URLSessionWebSocketTask.CloseCode, reason: Data?)
    }

    /// Ways in which an application cancels a task; a later one replaces an earlier one.
    enum Cancellation: Int {
        /// The connection is closed after the queued messages.
        case afterMessages
        /// The task ends at once.
        case atOnce
    }

    /// Maximum size of a received message in bytes.
    var maximumMessageSize = 1 << 20
    /// Messages of the connection, once it is open.
    var connection: WebSocketMessages?
    /// `true` once the task was resumed.
    var hasBegun = false
    /// Code of the close frame that ended the connection: the first one, of the application or of the server.
    private(set) var closeCode = URLSessionWebSocketTask.CloseCode.invalid
    private(set) var closeReason: Data?
    /// Error of each further call.
    private(set) var failure: (any Error)?
    /// `true` once the application closes the connection.
    private(set) var isClosing = false
    private var cancellation: Cancellation?
    private var lastCall = 0
    private var sends: [Int: (message: URLSessionWebSocketTask.Message, handler: Completion)] = [:]
    private var pings: [Int: Completion] = [:]
    private var receivers: [Receiver] = []

    /// Adds a message to send, and returns the number of the call; `nil` if calls can no longer succeed.
    mutating func addSend(
        of message: URLSessionWebSocketTask.Message,
        _ handler: @escaping Completion
    ) -> Int? {
        guard failure == nil else { return nil }
        lastCall += 1
        sends[lastCall] = (message, handler)
        return lastCall
    }

    /// Returns the message of a call, if it was not sent yet.
    func message(of call: Int) -> URLSessionWebSocketTask.Message? { sends[call]?.message }

    /// `true` while messages wait or are being sent.
    var hasUnsentMessages: Bool { !sends.isEmpty }

    /// Removes a message that was sent, or could not be; returns its handler.
    mutating func endSend(_ call: Int) -> Completion? { sends.removeValue(forKey: call)?.handler }

    /// Adds a ping to send, as ``addSend(of:_:)`` does for a message.
    mutating func addPing(_ handler: @escaping Completion) -> Int? {
        guard failure == nil else { return nil }
        lastCall += 1
        pings[lastCall] = handler
        return lastCall
    }

    /// Removes a ping that was answered, or could not be sent; returns its handler.
    mutating func endPing(_ call: Int) -> Completion? { pings.removeValue(forKey: call) }

    /// Adds a receive call; returns `false` if no message can arrive any more.
    mutating func addReceiver(_ handler: @escaping Receiver) -> Bool {
        guard failure == nil else { return false }
        receivers.append(handler)
        return true
    }

    /// Removes and returns the handler that has waited longest for a message.
    mutating func takeReceiver() -> Receiver? {
        receivers.isEmpty ? nil : receivers.removeFirst()
    }

    /// Records the close frame that ends the connection; the first one counts.
    mutating func noteClose(code: URLSessionWebSocketTask.CloseCode, reason: Data?) {
        guard closeCode == .invalid else { return }
        (closeCode, closeReason) = (code, reason)
    }

    /// Records that the application cancels the task; returns `false` if it has done so before, in this way or a faster
    /// one.
    mutating func note(_ cancellation: Cancellation) -> Bool {
        if let known = self.cancellation, known.rawValue >= cancellation.rawValue { return false }
        self.cancellation = cancellation
        return true
    }

    /// Records that the application closes the connection after its queued messages: pings are no longer answered, no
    /// message is received, and later calls fail.
    mutating func beginClosing(_ error: any Error) -> [@Sendable () -> Void] {
        isClosing = true
        failure = failure ?? error
        defer { (pings, receivers) = ([:], []) }
        return waitingForServer(error)
    }

    /// Records that the connection has ended: all calls fail.
    mutating func fail(_ error: any Error) -> [@Sendable () -> Void] {
        failure = failure ?? error
        defer { (sends, pings, receivers) = ([:], [:], []) }
        let unsent = sends.sorted { $0.key < $1.key }.map(\.value.handler)
        return unsent.map { handler in { @Sendable in handler(error) } } + waitingForServer(error)
    }

    private func waitingForServer(_ error: any Error) -> [@Sendable () -> Void] {
        let unanswered = pings.sorted { $0.key < $1.key }.map(\.value)
        return unanswered.map { handler in { @Sendable in handler(error) } }
            + receivers.map { handler in { @Sendable in handler(.failure(error)) } }
    }
}

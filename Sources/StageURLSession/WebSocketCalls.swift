import Foundation
import StageWebSocketClient

/// The calls of an application on a WebSocket task that have not returned, and how far its connection has got.
///
/// Decides and does nothing. A function that returns handlers forgets them, so that each is called once.
struct WebSocketCalls {
    typealias Completion = @Sendable ((any Error)?) -> Void
    typealias Receiver = @Sendable (Result<URLSessionWebSocketTask.Message, any Error>) -> Void

    /// A message, ping or close frame to send.
    enum Output: Sendable {
        case message(call: Int)
        case ping(call: Int)
        case close(code: URLSessionWebSocketTask.CloseCode, reason: Data?)
    }

    /// Most bytes of a message that is received.
    var maximumMessageSize = 1 << 20
    /// The messages of the connection, once it is open.
    var connection: WebSocketMessages?
    /// Whether the task was resumed.
    var hasBegun = false
    /// The close frame that ended the connection, the application's or the server's, whichever came first.
    private(set) var closeCode = URLSessionWebSocketTask.CloseCode.invalid
    private(set) var closeReason: Data?
    /// The error with which each further call fails.
    private(set) var failure: (any Error)?
    /// Whether the application closes the connection.
    private(set) var isClosing = false
    private var lastCall = 0
    private var sends: [Int: (message: URLSessionWebSocketTask.Message, handler: Completion)] = [:]
    private var pings: [Int: Completion] = [:]
    private var receivers: [Receiver] = []

    /// Notes a message to be sent, and returns the number of the call; `nil` if no call succeeds any more.
    mutating func addSend(
        of message: URLSessionWebSocketTask.Message,
        _ handler: @escaping Completion
    ) -> Int? {
        guard failure == nil else { return nil }
        lastCall += 1
        sends[lastCall] = (message, handler)
        return lastCall
    }

    /// The message of a call, if it is still to be sent.
    func message(of call: Int) -> URLSessionWebSocketTask.Message? { sends[call]?.message }

    /// Notes that a message was sent, or could not be.
    mutating func endSend(_ call: Int) -> Completion? { sends.removeValue(forKey: call)?.handler }

    /// Notes a ping to be sent, as ``addSend(of:_:)`` does a message.
    mutating func addPing(_ handler: @escaping Completion) -> Int? {
        guard failure == nil else { return nil }
        lastCall += 1
        pings[lastCall] = handler
        return lastCall
    }

    /// Notes that a ping was answered, or could not be sent.
    mutating func endPing(_ call: Int) -> Completion? { pings.removeValue(forKey: call) }

    /// Notes that a message is waited for; returns `false` if none can come any more.
    mutating func addReceiver(_ handler: @escaping Receiver) -> Bool {
        guard failure == nil else { return false }
        receivers.append(handler)
        return true
    }

    /// Returns the handler that has waited longest for a message.
    mutating func takeReceiver() -> Receiver? {
        receivers.isEmpty ? nil : receivers.removeFirst()
    }

    /// Notes the close frame that ends the connection; the first one counts.
    mutating func noteClose(code: URLSessionWebSocketTask.CloseCode, reason: Data?) {
        guard closeCode == .invalid else { return }
        (closeCode, closeReason) = (code, reason)
    }

    /// Notes that the application closes the connection after the messages that it has handed over: pings are not
    /// answered any more, no message is received, and no call after this succeeds.
    mutating func beginClosing(_ error: any Error) -> [@Sendable () -> Void] {
        isClosing = true
        failure = failure ?? error
        defer { (pings, receivers) = ([:], []) }
        return waitingForServer(error)
    }

    /// Notes that the connection has ended: no call succeeds any more.
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

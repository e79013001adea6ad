import StageModel
public import StageTransfer
public import StageWebSocket

/// Error of a WebSocket connection that could not be opened, or ended without both close frames.
@nonexhaustive
public indirect enum WebSocketClientError: Error, Equatable, Sendable {
    /// The server could not be reached, or the connection broke.
    case connection(TransferError)

    /// The peer violated the protocol, refused the handshake, or the connection is closing.
    case webSocket(WebSocketError)

    /// The server ended the connection without a close frame.
    case lost

    /// No byte came from the server within `limit`, despite a ping.
    case silent(limit: Duration)

    /// The opening handshake took longer than `limit`.
    case slowHandshake(limit: Duration)

    /// The task was cancelled, or the scope of the connection has ended.
    case cancelled

    /// The server closed the connection with this close frame.
    ///
    /// Thrown only by ``WebSocket/withReconnectingConnection(to:over:options:policy:_:)``; elsewhere the messages end
    /// without an error.
    case closed(WebSocketClose)

    /// There is currently no connection, and no byte was sent.
    case notConnected

    /// The policy's limits for reconnecting are reached after `failures` in a row; `last` is the most recent reason.
    case retriesExhausted(failures: Int, last: WebSocketClientError)
}

extension WebSocketClientError: CustomStringConvertible {
    /// Reason, as a sentence fragment for people.
    public var description: String {
        switch self {
        case .connection(let error): "\(error)"
        case .webSocket(let error): "\(error)"
        case .lost: "the server ended the connection without a close frame"
        case .silent(let limit): "the server sent nothing for \(limit.inWords)"
        case .slowHandshake(let limit): "the opening handshake took longer than \(limit.inWords)"
        case .cancelled: "the connection was cancelled"
        case .closed(let close):
            "the server closed the connection "
                + (close.code.map { "with code \($0.rawValue)" } ?? "without a code")
                + (close.reason.isEmpty ? "" : ": \(close.reason)")
        case .notConnected: "there is no connection at the moment"
        case .retriesExhausted(let failures, let last):
            "no connection lasted in \(failures) \(failures == 1 ? "attempt" : "attempts"): \(last)"
        }
    }
}

public import StageTransfer
public import StageWebSocket

/// Reasons why a WebSocket connection could not be opened, or ended without both close frames.
@nonexhaustive
public indirect enum WebSocketClientError: Error, Equatable, Sendable {
    /// The server could not be reached, or the connection broke.
    case connection(TransferError)

    /// The peer broke the protocol, refused the handshake, or the connection is closing.
    case webSocket(WebSocketError)

    /// The server ended the connection without a close frame.
    case lost

    /// Nothing came from the server for `limit`, although it was asked.
    case silent(limit: Duration)

    /// The opening handshake took longer than `limit`.
    case slowHandshake(limit: Duration)

    /// The task was cancelled, or the scope of the connection has ended.
    case cancelled
}

extension WebSocketClientError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .connection(let error): "\(error)"
        case .webSocket(let error): "\(error)"
        case .lost: "the server ended the connection without a close frame"
        case .silent(let limit): "nothing came from the server in \(limit)"
        case .slowHandshake(let limit): "the opening handshake took longer than \(limit)"
        case .cancelled: "the connection was cancelled"
        }
    }
}

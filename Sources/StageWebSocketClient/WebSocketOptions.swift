public import StageWebSocket

/// Options of a client's WebSocket connection.
///
/// The time in which the machine is suspended does not count for the time limits and for ``pingInterval``.
public struct WebSocketOptions: Sendable {
    /// Subprotocols to offer, the preferred one first.
    public var subprotocols: [String] = []
    /// Further fields of the request.
    public var fields: [WebSocketField] = []
    /// Maximum offer of permessage-deflate; `nil` for no compression.
    public var compression: DeflateAgreement? = DeflateAgreement()
    /// Limits for data from the server.
    public var limits = WebSocketLimits()
    /// Time limit for connecting and the opening handshake together.
    public var handshakeTimeout = Duration.seconds(60)
    /// Time without a byte from the server after which it receives a ping; `nil` for no pings.
    ///
    /// After twice that time the connection fails. A server that takes a long message counts as one that sends.
    public var pingInterval: Duration? = .seconds(30)
    /// Time limit for the server's answer to the close frame.
    ///
    /// The frame is sent after the bytes before it; while the server takes none of them for that time, the limit
    /// ends the connection as well.
    public var closeTimeout = Duration.seconds(5)
    /// `true` to require TLS 1.3 instead of 1.2 or later.
    public var requiresNewestTLS = false
    /// Receives the head of the server's response, before the connection opens or a refusal is thrown.
    public var onResponse: (@Sendable (HTTPHead) -> Void)?

    /// Creates options with compression, messages of at most 1 MiB and no subprotocol.
    public init() {}
}

public import StageWebSocket

/// Options of a WebSocket connection of a client.
public struct WebSocketOptions: Sendable {
    /// Subprotocols to offer, the preferred one first.
    public var subprotocols: [String] = []
    /// Further fields of the request.
    public var fields: [WebSocketField] = []
    /// Most that is offered of permessage-deflate; `nil` for no compression.
    public var compression: DeflateAgreement? = DeflateAgreement()
    /// Limits of what the server may send.
    public var limits = WebSocketLimits()
    /// Time that connecting and the opening handshake may take together.
    public var handshakeLimit = Duration.seconds(60)
    /// Time after which a server from which nothing came is sent a ping; `nil` for no pings.
    ///
    /// After twice that time the connection counts as broken.
    public var pingInterval: Duration? = .seconds(30)
    /// Time that the closing handshake may take.
    public var closeLimit = Duration.seconds(5)
    /// Whether TLS 1.3 is the oldest version that is spoken, instead of 1.2.
    public var requiresNewestTLS = false
    /// Receiver of the head of the server's answer, called before the connection opens, and before a refusal is thrown.
    public var onAnswer: (@Sendable (HTTPHead) -> Void)?

    /// Creates options with compression, messages of at most 1 MiB and no subprotocol.
    public init() {}
}

/// A status code of a close frame (RFC 6455, section 7.4).
public struct CloseCode: RawRepresentable, Hashable, Sendable {
    /// Number of the code.
    public var rawValue: UInt16

    /// Creates a code from its number, which is not checked.
    public init(rawValue: UInt16) { self.rawValue = rawValue }

    /// The purpose of the connection is fulfilled.
    public static let normalClosure = CloseCode(rawValue: 1000)
    /// The endpoint goes away: a server shuts down, or a client leaves the page.
    public static let goingAway = CloseCode(rawValue: 1001)
    /// A frame violates the protocol.
    public static let protocolError = CloseCode(rawValue: 1002)
    /// The endpoint does not accept messages of this type.
    public static let unsupportedData = CloseCode(rawValue: 1003)
    /// The close frame had no code; never sent.
    public static let noStatusReceived = CloseCode(rawValue: 1005)
    /// There was no close frame; never sent.
    public static let abnormalClosure = CloseCode(rawValue: 1006)
    /// The content of a message does not match its type.
    public static let invalidPayload = CloseCode(rawValue: 1007)
    /// A message violates a policy of the endpoint.
    public static let policyViolation = CloseCode(rawValue: 1008)
    /// A message is too large.
    public static let messageTooBig = CloseCode(rawValue: 1009)
    /// The server did not accept an extension that the client requires.
    public static let mandatoryExtensionMissing = CloseCode(rawValue: 1010)
    /// The server encountered an unexpected condition.
    public static let internalServerError = CloseCode(rawValue: 1011)
    /// The TLS handshake failed; never sent.
    public static let tlsHandshakeFailure = CloseCode(rawValue: 1015)

    /// `true` if a close frame may have the code: a registered code that is not reserved, or one of an application.
    public var mayBeSent: Bool {
        switch rawValue {
        case 1000...1003, 1007...1014, 3000...4999: true
        default: false
        }
    }
}

/// Content of a close frame.
public struct WebSocketClose: Hashable, Sendable {
    /// The code; `nil` if the frame has none.
    public var code: CloseCode?
    /// The reason, at most 123 bytes of UTF-8.
    public var reason: String

    /// Creates the content of a close frame.
    public init(code: CloseCode? = nil, reason: String = "") {
        self.code = code
        self.reason = reason
    }
}

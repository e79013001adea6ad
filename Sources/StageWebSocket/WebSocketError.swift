/// Error of a handshake or a connection.
@nonexhaustive
public indirect enum WebSocketError: Error, Equatable, Sendable {
    /// A frame violates RFC 6455.
    case frame(FrameFault)

    /// A text message or a close reason is not UTF-8.
    case invalidText

    /// The payload of a compressed message is not a DEFLATE stream (RFC 7692).
    case invalidCompression

    /// A frame or a message is larger than `limit` bytes.
    case tooLarge(limit: Int)

    /// A message has more than `limit` fragments without a byte.
    case tooManyEmptyFragments(limit: Int)

    /// The response to the opening handshake, or the request, violates RFC 6455.
    case handshake(HandshakeFault)

    /// The server responded to the opening handshake with a status other than 101.
    case refused(status: Int)

    /// A message was sent after the close frame.
    case closed
}

/// Violation of the frame format (RFC 6455, section 5).
@nonexhaustive
public enum FrameFault: Equatable, Sendable {
    /// A reserved bit is set that no extension defines.
    case reservedBits
    /// The opcode is reserved.
    case reservedOpcode(UInt8)
    /// A control frame is fragmented.
    case fragmentedControl
    /// A control frame has more than 125 bytes.
    case longControl
    /// A client sent a frame that is not masked.
    case missingMask
    /// A server sent a masked frame.
    case unexpectedMask
    /// The length is not in its shortest form, or has the highest bit set.
    case length
    /// A continuation frame follows no fragment.
    case unexpectedContinuation
    /// A new message begins before the fragmented one ended.
    case interruptedMessage
    /// A close frame has one byte, which is not a code.
    case closePayload
    /// A close frame has a code that must not be sent.
    case closeCode(UInt16)
}

/// Violation of the opening handshake (RFC 6455, section 4).
@nonexhaustive
public enum HandshakeFault: Equatable, Sendable {
    /// The head is not an HTTP/1.1 head.
    case head
    /// The head has more than `limit` bytes.
    case headTooLarge(limit: Int)
    /// The `Upgrade` field does not name `websocket`.
    case upgrade
    /// The `Connection` field does not name `Upgrade`.
    case connection
    /// The `Sec-WebSocket-Accept` field does not match the key.
    case accept
    /// The server selected a subprotocol that the client did not offer, or several.
    case subprotocol
    /// The server selected an extension that the client did not offer, or parameters that do not match the offer.
    case extensions
    /// An argument of the client has a character that a head cannot contain.
    case argument
}

extension WebSocketError {
    /// Code of the close frame that reports the error to the peer.
    public var closeCode: CloseCode {
        switch self {
        case .frame: .protocolError
        case .invalidText, .invalidCompression: .invalidPayload
        case .tooLarge: .messageTooBig
        case .tooManyEmptyFragments: .policyViolation
        case .handshake, .refused, .closed: .protocolError
        }
    }
}

extension WebSocketError: CustomStringConvertible {
    /// Reason, as a sentence fragment for people.
    public var description: String {
        switch self {
        case .frame(let fault): "the peer sent an invalid frame: \(fault)"
        case .invalidText: "the peer sent text that is not UTF-8"
        case .invalidCompression: "the peer sent a compressed message that cannot be decompressed"
        case .tooLarge(let limit): "the peer sent a message of more than \(limit) bytes"
        case .tooManyEmptyFragments(let limit):
            "the peer sent more than \(limit) empty fragments of one message"
        case .handshake(let fault): "the opening handshake is invalid: \(fault)"
        case .refused(let status): "the server responded with status \(status), expected 101"
        case .closed: "the connection is closing"
        }
    }
}

extension FrameFault: CustomStringConvertible {
    /// Violation, as a sentence fragment for people.
    public var description: String {
        switch self {
        case .reservedBits: "a reserved bit is set"
        case .reservedOpcode(let code): "opcode \(code) is reserved"
        case .fragmentedControl: "a control frame is fragmented"
        case .longControl: "a control frame has more than 125 bytes"
        case .missingMask: "a client's frame is not masked"
        case .unexpectedMask: "a server's frame is masked"
        case .length: "the length is not in its shortest form"
        case .unexpectedContinuation: "a continuation follows no fragment"
        case .interruptedMessage: "a message begins before the last one ended"
        case .closePayload: "a close frame has one byte"
        case .closeCode(let code): "close code \(code) must not be sent"
        }
    }
}

extension HandshakeFault: CustomStringConvertible {
    /// Violation, as a sentence fragment for people.
    public var description: String {
        switch self {
        case .head: "the head is not an HTTP/1.1 head"
        case .headTooLarge(let limit): "the head has more than \(limit) bytes"
        case .upgrade: "the field 'Upgrade' does not name 'websocket'"
        case .connection: "the field 'Connection' does not name 'Upgrade'"
        case .accept: "the field 'Sec-WebSocket-Accept' does not match the key"
        case .subprotocol: "the subprotocol was not offered"
        case .extensions: "the extensions do not match the offer"
        case .argument: "an argument has a character that a head cannot contain"
        }
    }
}

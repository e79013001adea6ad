/// A message of a WebSocket connection.
public enum WebSocketMessage: Hashable, Sendable {
    /// Text.
    case text(String)
    /// Bytes.
    case binary([UInt8])

    /// Number of bytes of the message, as UTF-8 for text.
    public var count: Int {
        switch self {
        case .text(let text): text.utf8.count
        case .binary(let bytes): bytes.count
        }
    }
}

/// An event that a ``WebSocketMachine`` finds in what it received.
public enum WebSocketEvent: Equatable, Sendable {
    /// A message is complete.
    case message(WebSocketMessage)
    /// A ping came; the pong is in the output already.
    case ping([UInt8])
    /// A pong came.
    case pong([UInt8])
    /// The peer sent a close frame; the next look for an event answers it, if none was sent before.
    case close(WebSocketClose)
    /// The peer broke the rules; the next look for an event queues the close frame that says so. No event follows.
    case failure(WebSocketError)
}

/// Limits of what a peer may send.
public struct WebSocketLimits: Equatable, Sendable {
    /// Largest message in bytes, after decompression.
    public var messageSize: Int
    /// Largest payload of a data frame in bytes, before decompression; control frames have 125 at most.
    public var frameSize: Int
    /// Most fragments of one message that have no bytes, and most final DEFLATE blocks in one message.
    public var emptyFragments: Int

    /// Creates limits; by default messages of 1 MiB and frames as large as one that compression has not made smaller.
    public init(messageSize: Int = 1 << 20, frameSize: Int? = nil, emptyFragments: Int = 1024) {
        self.messageSize = messageSize
        let slack = messageSize / 1024 + 1024
        self.frameSize = frameSize ?? (messageSize < .max - slack ? messageSize + slack : .max)
        self.emptyFragments = emptyFragments
    }
}

/// A message of a WebSocket connection.
public enum WebSocketMessage: Hashable, Sendable {
    /// Text.
    case text(String)
    /// Bytes.
    case binary([UInt8])

    /// Size of the message in bytes, as UTF-8 for text.
    public var count: Int {
        switch self {
        case .text(let text): text.utf8.count
        case .binary(let bytes): bytes.count
        }
    }
}

/// An event that a ``WebSocketMachine`` finds in received bytes.
package enum WebSocketEvent: Equatable, Sendable {
    /// A complete message arrived.
    case message(WebSocketMessage)
    /// A ping arrived; the pong is already in the output.
    case ping([UInt8])
    /// A pong arrived.
    case pong([UInt8])
    /// The peer sent a close frame; the next call of ``WebSocketMachine/nextEvent()`` queues the response, if none
    /// was sent.
    case close(WebSocketClose)
    /// The peer violated the protocol; the next call of ``WebSocketMachine/nextEvent()`` queues a close frame with
    /// the reason. No event follows.
    case failure(WebSocketError)
}

/// Limits for data from a peer.
public struct WebSocketLimits: Equatable, Sendable {
    /// Maximum size of a message in bytes, after decompression.
    public var messageSize: Int
    /// Maximum payload of a data frame in bytes, before decompression; control frames have at most 125.
    public var frameSize: Int
    /// Maximum number of empty fragments of one message, and of final DEFLATE blocks in one message.
    public var emptyFragments: Int

    /// Creates limits; by default for messages of 1 MiB, and frames as large as such a message that compression has
    /// not made smaller.
    public init(messageSize: Int = 1 << 20, frameSize: Int? = nil, emptyFragments: Int = 1024) {
        self.messageSize = messageSize
        let slack = messageSize / 1024 + 1024
        self.frameSize = frameSize ?? (messageSize < .max - slack ? messageSize + slack : .max)
        self.emptyFragments = emptyFragments
    }
}

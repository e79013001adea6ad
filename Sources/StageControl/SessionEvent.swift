public import FoundationEssentials
public import StageModel

/// What a server answered, as far as clients see it.
public struct TransferResponse: Hashable, Codable, Sendable {
    /// The URL that answered, after redirects.
    public var url: String
    /// The status.
    public var status: Int
    /// The header fields, in the order and spelling of the server.
    public var headers: [[String]]

    /// Creates an answer from its parts; each header field is a name and a value.
    public init(url: String, status: Int, headers: [[String]]) {
        self.url = url
        self.status = status
        self.headers = headers
    }
}

/// What a task cost.
public struct TransferMetrics: Hashable, Codable, Sendable {
    /// When the first attempt began.
    public var started: Date?
    /// When the task ended.
    public var ended: Date
    /// How often a server was asked.
    public var attempts: Int
    /// The bytes of bodies that were received, failed attempts included.
    public var bytesReceived: ByteCount
    /// The bytes of bodies that were sent, failed attempts included.
    public var bytesSent: ByteCount
    /// How many redirects the last attempt followed.
    public var redirects: Int
    /// The last attempt that was answered.
    public var attempt: AttemptMetrics?

    /// Creates metrics of a task that moved nothing.
    public init(ended: Date) {
        self.ended = ended
        attempts = 0
        bytesReceived = .zero
        bytesSent = .zero
        redirects = 0
    }
}

/// Times, sizes and connection of one attempt, as far as the daemon measures them.
public struct AttemptMetrics: Hashable, Codable, Sendable {
    /// When the server was asked, redirects included.
    public var fetchStart: Date?
    /// When the head of the answer was complete.
    public var responseStart: Date?
    /// When the attempt ended.
    public var responseEnd: Date?
    /// Seconds from the start of the last request to the end of the lookup of the host's name.
    public var nameLookup: Double?
    /// Seconds to the end of the connection's set-up, TLS excluded; `nil` for a connection that was open.
    public var connect: Double?
    /// Seconds to the end of the TLS handshake; `nil` without one.
    public var secureConnect: Double?
    /// Seconds to the start of the request.
    public var requestStart: Double?
    /// Seconds to the first byte of the answer.
    public var firstByte: Double?
    /// The protocol's name as in ALPN: `http/1.1`, `h2` or `h3`.
    public var networkProtocol: String?
    /// The address that answered: the server's, or a proxy's.
    public var remoteAddress: String?
    /// The port that answered.
    public var remotePort: Int?
    /// The address of this machine.
    public var localAddress: String?
    /// The port of this machine.
    public var localPort: Int?
    /// Whether the connection was open already.
    public var isReusedConnection: Bool?
    /// The bytes of the request's head.
    public var requestHeaderBytes: Int64?
    /// The bytes of the answer's head.
    public var responseHeaderBytes: Int64?
    /// The bytes of the body that the attempt received.
    public var bytesReceived: Int64?
    /// The bytes of the body that the attempt sent.
    public var bytesSent: Int64?

    /// Creates metrics of which nothing is known.
    public init() {}
}

/// Why a task failed.
public struct TransferFailure: Hashable, Codable, Sendable {
    /// The kinds of failures, which stay the same.
    public enum Kind: String, Codable, Sendable, CaseIterable {
        /// The server could not be reached in time.
        case unreachable
        /// The task did not end within the session's resource timeout.
        case timedOut
        /// The server answered with a status that is no success.
        case refused
        /// The content is not what was asked for: another size or digest.
        case wrongContent
        /// The server could not prove who it is.
        case untrusted
        /// The request is one that cannot be made.
        case unacceptable
        /// The disk refused.
        case storage
        /// What a resume token stands for is not there any more.
        case cannotResume
        /// What was staged got lost on this machine.
        case lost
    }

    /// The kind.
    public var kind: Kind
    /// The reason, in words for a person.
    public var reason: String
    /// The status, where a server gave one.
    public var status: Int?
    /// A token by which another task goes on with what was received, where that is possible.
    public var resumeToken: String?

    /// Creates a failure.
    public init(_ kind: Kind, reason: String, status: Int? = nil) {
        self.kind = kind
        self.reason = reason
        self.status = status
    }
}

/// Something that happened in a session.
///
/// Events with a ``sequence`` are kept until they are acknowledged, and delivered again to every client
/// that attaches: in order, at least once. The others tell of progress, and are gone once said.
public struct SessionEvent: Hashable, Codable, Sendable {
    /// What happened.
    public enum Kind: String, Codable, Sendable, CaseIterable {
        /// The first line of a stream: the client is attached.
        case attached
        /// Nothing happened, and the stream is alive.
        case heartbeat
        /// All durable events that there are were delivered, and no task is unfinished.
        case finishedEvents
        /// A download goes on at ``SessionEvent/offset``.
        case resumed
        /// Bytes moved, or the head of an answer is here.
        case progress
        /// The task changed in another way; ``SessionEvent/state`` and ``SessionEvent/holds`` say how.
        case changed
        /// The server wants to know who asks (durable).
        case challenged
        /// The task ended well (durable).
        case completed
        /// The task ended in an error (durable).
        case failed
        /// The task was cancelled (durable).
        case cancelled
        /// The session is gone.
        case invalidated
    }

    /// The number of a durable event within its session, from 1.
    public var sequence: Int64?
    /// What happened.
    public var kind: Kind
    /// When it happened.
    public var time: Date
    /// The task.
    public var task: Int64?
    /// The session, in a stream of several.
    public var session: String?
    /// The number of the session that the client is attached to, ``SessionStatus/number``; of `attached`.
    public var sessionNumber: Int64?
    /// Where a download goes on.
    public var offset: ByteCount?
    /// How many bytes of the content are here.
    public var bytesReceived: ByteCount?
    /// How many bytes of the file were sent.
    public var bytesSent: ByteCount?
    /// How many bytes there are in all.
    public var bytesExpected: ByteCount?
    /// What the task has changed to.
    public var state: TransferTask.State?
    /// Why nothing moves.
    public var holds: [Hold]?
    /// The path of a finished download, which is the client's from now on: to be moved away before the
    /// event is acknowledged.
    ///
    /// `nil` where the file was moved already.
    public var location: String?
    /// The head of the server's answer: of an end, a challenge, and the first progress after it.
    public var response: TransferResponse?
    /// The body of the answer to an upload, up to 64 KiB of it; of a challenge that ends the upload if it is rejected.
    public var body: Data?
    /// What it cost.
    public var metrics: TransferMetrics?
    /// Why it failed.
    public var failure: TransferFailure?
    /// The value of the `WWW-Authenticate` field of a challenge.
    public var challenge: String?
    /// The token by which another task goes on with what a cancelled one received.
    public var resumeToken: String?

    /// Creates an event.
    public init(_ kind: Kind, time: Date) {
        self.kind = kind
        self.time = time
    }
}

/// What a client has taken in.
public struct Acknowledgement: Hashable, Codable, Sendable {
    /// The number of the last event that needs not be delivered again.
    public var sequence: Int64
    /// The token of the launch that the client was started by, if it was.
    public var launch: String?

    /// Creates an acknowledgement of all events up to a number.
    public init(sequence: Int64, launch: String? = nil) {
        self.sequence = sequence
        self.launch = launch
    }
}

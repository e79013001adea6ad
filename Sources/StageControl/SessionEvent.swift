package import FoundationEssentials
package import StageModel

/// Head of a server's response, as reported to clients.
package struct TransferResponse: Hashable, Codable, Sendable {
    /// URL of the response, after redirects.
    package var url: String
    /// Status code.
    package var status: Int
    /// Header fields, in the server's order and spelling.
    package var headers: [[String]]

    /// Creates a response; each header field is a name and a value.
    package init(url: String, status: Int, headers: [[String]]) {
        self.url = url
        self.status = status
        self.headers = headers
    }
}

/// Metrics of a task.
package struct TransferMetrics: Hashable, Codable, Sendable {
    /// Start of the first attempt.
    package var started: Date?
    /// End of the task.
    package var ended: Date
    /// Number of requests.
    package var attempts: Int
    /// Bytes of received bodies, including failed attempts.
    package var bytesReceived: ByteCount
    /// Bytes of sent bodies, including failed attempts.
    package var bytesSent: ByteCount
    /// Number of redirects that the last attempt followed.
    package var redirects: Int
    /// Metrics of the last attempt that received a response.
    package var attempt: AttemptMetrics?

    /// Creates metrics without transferred bytes.
    package init(ended: Date) {
        self.ended = ended
        attempts = 0
        bytesReceived = .zero
        bytesSent = .zero
        redirects = 0
    }
}

/// Times, sizes and connection of one attempt, as far as the daemon measures them.
package struct AttemptMetrics: Hashable, Codable, Sendable {
    /// Time of the request, before redirects.
    package var fetchStart: Date?
    /// Time at which the head of the response was complete.
    package var responseStart: Date?
    /// End of the attempt.
    package var responseEnd: Date?
    /// Seconds from the start of the last request to the end of the name lookup.
    package var nameLookup: Double?
    /// Seconds to the end of the connection setup, without TLS; `nil` for a reused connection.
    package var connect: Double?
    /// Seconds to the end of the TLS handshake; `nil` without one.
    package var secureConnect: Double?
    /// Seconds to the start of the request.
    package var requestStart: Double?
    /// Seconds to the first byte of the response.
    package var firstByte: Double?
    /// ALPN name of the protocol: `http/1.1`, `h2` or `h3`.
    package var networkProtocol: String?
    /// Remote address: the server's, or a proxy's.
    package var remoteAddress: String?
    /// Remote port.
    package var remotePort: Int?
    /// Local address.
    package var localAddress: String?
    /// Local port.
    package var localPort: Int?
    /// `true` if the connection was reused.
    package var isReusedConnection: Bool?
    /// Bytes of the request's head.
    package var requestHeaderBytes: Int64?
    /// Bytes of the response's head.
    package var responseHeaderBytes: Int64?
    /// Bytes of the received body.
    package var bytesReceived: Int64?
    /// Bytes of the sent body.
    package var bytesSent: Int64?

    /// Creates metrics without values.
    package init() {}
}

/// Reason why a task failed.
package struct TransferFailure: Hashable, Codable, Sendable {
    /// Stable kinds of failures.
    package enum Kind: RawRepresentable, Hashable, Codable, Sendable, CaseIterable {
        /// The server could not be reached in time.
        case unreachable
        /// The task did not end before its deadline, the session's resource timeout.
        case timedOut
        /// The server responded with an error status.
        case refused
        /// The content has another size or digest than expected.
        case wrongContent
        /// The server could not be authenticated (TLS).
        case untrusted
        /// The request is invalid.
        case unacceptable
        /// A disk error.
        case storage
        /// The resume data is not available any more.
        case cannotResume
        /// Stored data of the task is damaged or missing on this machine.
        case lost
        /// A kind that this version does not know, sent by a newer daemon.
        case other(String)

        /// The kinds that this version knows.
        package static let allCases: [Kind] = [
            .unreachable, .timedOut, .refused, .wrongContent, .untrusted, .unacceptable, .storage,
            .cannotResume, .lost,
        ]

        /// Creates the code with a text; never `nil`.
        package init?(rawValue: String) {
            self = Self.allCases.first { $0.rawValue == rawValue } ?? .other(rawValue)
        }

        /// Text of the code in JSON.
        package var rawValue: String {
            switch self {
            case .unreachable: "unreachable"
            case .timedOut: "timedOut"
            case .refused: "refused"
            case .wrongContent: "wrongContent"
            case .untrusted: "untrusted"
            case .unacceptable: "unacceptable"
            case .storage: "storage"
            case .cannotResume: "cannotResume"
            case .lost: "lost"
            case .other(let code): code
            }
        }
    }

    /// Kind of the failure.
    package var kind: Kind
    /// The reason, for people.
    package var reason: String
    /// Status code of the response, if there was one.
    package var status: Int?
    /// Token with which another task can resume the received bytes, if that is possible.
    package var resumeToken: String?

    /// Creates a failure.
    package init(_ kind: Kind, reason: String, status: Int? = nil) {
        self.kind = kind
        self.reason = reason
        self.status = status
    }
}

extension TransferFailure.Kind {
    /// The closest code of Apple's `BAErrorCode` for a download: 102 if its content cannot be stored, 103 for every other failure.
    package var backgroundAssetsCode: Int { self == .storage ? 102 : 103 }
}

/// Event of a session.
///
/// Durable events have a ``sequence``. They are kept until they are acknowledged, and delivered in order, at least
/// once, to each client that attaches. All other events are delivered at most once.
package struct SessionEvent: Hashable, Codable, Sendable {
    /// Kind of the event.
    package enum Kind: String, Codable, Sendable, CaseIterable {
        /// First line of a stream: the client is attached.
        case attached
        /// Sent regularly to show that the stream is alive.
        case heartbeat
        /// All durable events so far were delivered, and no task is unfinished.
        case finishedEvents
        /// A download resumes at ``SessionEvent/offset``.
        case resumed
        /// Bytes were transferred, or the head of a response has arrived.
        case progress
        /// The task changed in another way, described by ``SessionEvent/state`` and ``SessionEvent/pendingReasons``.
        case changed
        /// The server sent an authentication challenge (durable).
        case challenged
        /// The task has completed (durable).
        case completed
        /// The task has failed (durable).
        case failed
        /// The client has cancelled the task (durable).
        case cancelled
        /// The session was removed.
        case invalidated
    }

    /// Sequence number of a durable event within its session, from 1.
    package var sequence: Int64?
    /// Kind of the event.
    package var kind: Kind
    /// Time of the event.
    package var time: Date
    /// Identifier of the task.
    package var task: Int64?
    /// Identifier of the session, in a stream of several sessions.
    package var session: String?
    /// ``SessionStatus/number`` of the attached session, in an `attached` event.
    package var sessionNumber: Int64?
    /// Offset at which a download resumes.
    package var offset: ByteCount?
    /// Content bytes received so far.
    package var bytesReceived: ByteCount?
    /// File bytes sent so far.
    package var bytesSent: ByteCount?
    /// Total bytes of the content or file.
    package var bytesExpected: ByteCount?
    /// New state of the task.
    package var state: TransferTask.State?
    /// Reasons why the task does not run.
    package var pendingReasons: [PendingReason]?
    /// Path of a finished download, which the client must move away before it acknowledges the event.
    ///
    /// `nil` if the file was already moved.
    package var location: String?
    /// Head of the server's response: in final events, challenges, the first progress event after the response, and the
    /// first one for a client that has missed events.
    package var response: TransferResponse?
    /// First 64 KiB of an upload's response body.
    ///
    /// A challenge includes it as well, since it becomes the response if the client rejects the challenge.
    package var body: Data?
    /// Metrics of the task.
    package var metrics: TransferMetrics?
    /// Reason why the task failed.
    package var failure: TransferFailure?
    /// Value of the `WWW-Authenticate` field of a challenge.
    package var challenge: String?
    /// Token with which another task can resume the received bytes of a cancelled one.
    package var resumeToken: String?

    /// Creates an event.
    package init(_ kind: Kind, time: Date) {
        self.kind = kind
        self.time = time
    }
}

/// Acknowledgement of events that the client has processed.
package struct Acknowledgement: Hashable, Codable, Sendable {
    /// Sequence number of the last processed event.
    package var sequence: Int64
    /// Token of the launch that started the client, if one did.
    package var launch: String?

    /// Creates an acknowledgement of all events up to a sequence number.
    package init(sequence: Int64, launch: String? = nil) {
        self.sequence = sequence
        self.launch = launch
    }
}

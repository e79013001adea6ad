public import FoundationEssentials
public import StageModel

/// What a client asks to be transferred.
public struct TransferRequest: Hashable, Codable, Sendable {
    /// The direction.
    public enum Kind: String, Codable, Sendable, CaseIterable {
        /// From a server into a file.
        case download
        /// From a file to a server.
        case upload
        /// Packs into a container, by the client while it is attached, else by a worker of the daemon's.
        case staging
    }

    /// Names the request within its session, chosen by the client: the same token again is the same
    /// task, so a request whose answer was lost can be repeated.
    public var token: String
    /// The direction.
    public var kind: Kind
    /// The absolute http or https URL; of a staging a text that names what is staged.
    public var url: String
    /// The packs of a staging, their container, and the conditions.
    public var staging: StagingOrder?
    /// Further URLs of the same content, for downloads that have a digest.
    public var mirrors: [String]?
    /// The host names that the content may come from, redirects included, each exact or `*.` and a name
    /// for every name below it; without it, every host.
    public var allowedDomains: [String]?
    /// The method of HTTP: GET of downloads, POST or PUT of uploads.
    public var method: String?
    /// Header fields.
    public var headers: [String: String]?
    /// The exact size of the content, where it is known.
    public var size: ByteCount?
    /// The SHA-256 digest of the content, as 64 hexadecimal digits, where it is known.
    public var sha256: String?
    /// The absolute path of the file to upload, of which the daemon takes a copy before it answers.
    public var file: String?
    /// The task is not started before.
    public var earliestBegin: Date?
    /// The client's best guess of the bytes that will be received, headers included.
    public var expectedToReceive: ByteCount?
    /// The client's best guess of the bytes that will be sent, headers included.
    public var expectedToSend: ByteCount?
    /// A text of the client's, kept with the task.
    public var description: String?
    /// Orders tasks of the session, from 0 to 1; 0.5 if there is none.
    public var priority: Double?
    /// Whether the task waits for ``TransferChange/state`` to be set to running.
    public var isSuspended: Bool?
    /// Whether this task may run on a network that costs money by the byte; the session's rule counts
    /// where it is stricter.
    public var allowsExpensiveNetworkAccess: Bool?
    /// Whether this task may run on a network that is to be spared; the session's rule counts where it
    /// is stricter.
    public var allowsConstrainedNetworkAccess: Bool?
    /// What an earlier task left behind: its ``TransferTask/resumeToken``.
    public var resumeToken: String?
    /// Whether an answer with an error status completes the task, with its body; without it, it completes uploads
    /// and fails downloads.
    public var acceptsErrorResponses: Bool?
    /// Whether a 401 or 407 is an answer like any other, although the session answers challenges.
    public var ignoresChallenges: Bool?
    /// Whether the `Authorization` field of ``headers`` answers a challenge; the daemon says so, and tells the field to
    /// no client: another member of the session's group may have answered.
    public var hasChallengeCredential: Bool?
    /// Whether the server acts on the request once however often it gets it; without it the method tells
    /// (RFC 9110, section 9.2.2).
    public var isIdempotent: Bool?
    /// The presigned requests by which an upload is sent in parts.
    ///
    /// The URL of the request then stands for the upload and has the origin of their completion. The daemon tells them to no client: each is a capability.
    public var parts: UploadParts?

    /// Creates a request from what it cannot do without.
    public init(token: String, kind: Kind, url: String) {
        self.token = token
        self.kind = kind
        self.url = url
    }
}

/// Why a task that could run does not, in words that stay the same.
public enum HoldReason: String, Codable, Sendable, CaseIterable {
    /// The client suspended it.
    case pausedByClient
    /// A person paused it.
    case pausedByUser
    /// Its earliest begin is in the future.
    case earliestBegin
    /// There is no network.
    case offline
    /// The network wants a login first.
    case portal
    /// The network costs money by the byte.
    case metered
    /// The network is to be spared.
    case constrained
    /// The machine runs on its battery.
    case onBattery
    /// The machine saves power.
    case powerSaver
    /// The daemon has not picked the time yet.
    case discretionary
    /// The disk is full.
    case disk
    /// All connections are in use.
    case slot
    /// An attempt failed, and the next is due later.
    case backoff
    /// The server asked to be left alone.
    case server
    /// The session's handler was started often lately.
    case penalty
    /// The session's user has as many bytes or tasks under way as one may.
    case quota
    /// The certificate is not valid by this machine's clock, which seems to be wrong.
    case clock
    /// The server wants to know who asks.
    case authentication
}

/// A reason with what is known of its end.
public struct Hold: Hashable, Codable, Sendable {
    /// The reason.
    public var reason: HoldReason
    /// When it is looked at again, where that is not as soon as something changes.
    public var until: Date?
    /// The failure of the last attempt, in words for a person, where the task waits because of it.
    public var problem: String?

    /// Creates a reason without a time.
    public init(_ reason: HoldReason, until: Date? = nil, problem: String? = nil) {
        self.reason = reason
        self.until = until
        self.problem = problem
    }
}

/// A task as the daemon has it.
public struct TransferTask: Hashable, Codable, Sendable {
    /// Where a task has got to.
    public enum State: String, Codable, Sendable {
        /// It waits for the client to start it.
        case suspended
        /// It waits for something: see ``TransferTask/holds``.
        case waiting
        /// Bytes move, or could at any moment.
        case running
        /// It has ended well.
        case completed
        /// It has ended in an error.
        case failed
        /// It was cancelled.
        case cancelled
    }

    /// The value of a header field that the daemon does not tell.
    public static let hiddenValue = "(not shown)"

    /// The number of the task, which no other task of this daemon ever gets.
    public var id: Int64
    /// The session.
    public var session: String
    /// The number of the user it belongs to.
    public var user: UInt32
    /// What was asked for.
    public var request: TransferRequest
    /// Where it has got to.
    public var state: State
    /// Why nothing moves, while it waits.
    public var holds: [Hold]
    /// When it was created.
    public var created: Date
    /// How many bytes of the content are here.
    public var bytesReceived: ByteCount
    /// How many bytes of the file were sent.
    public var bytesSent: ByteCount
    /// How many bytes the content has; `nil` as long as nobody has said.
    public var bytesExpected: ByteCount?
    /// The head of the server's last answer, at most 4 KiB of its fields while the task waits.
    public var response: TransferResponse?
    /// How often a server was asked.
    public var attempts: Int
    /// What the last attempt failed of, in words for a person.
    public var lastProblem: String?

    /// Creates a task from what it cannot do without.
    public init(
        id: Int64,
        session: String,
        user: UInt32,
        request: TransferRequest,
        state: State,
        created: Date
    ) {
        self.id = id
        self.session = session
        self.user = user
        self.request = request
        self.state = state
        self.created = created
        holds = []
        bytesReceived = .zero
        bytesSent = .zero
        attempts = 0
    }
}

/// What a client changes about a task: what is `nil` stays.
public struct TransferChange: Hashable, Codable, Sendable {
    /// What a client may want a task to be.
    public enum State: String, Codable, Sendable {
        /// Under way as soon as it can be.
        case running
        /// Held until the client wants it to run again.
        case suspended
        /// Ended; what was received is kept for a while if ``TransferChange/producesResumeToken``.
        case cancelled
        /// Held by a person, whatever the client wants.
        case paused
        /// No longer held by a person.
        case unpaused
    }

    /// The state.
    public var state: State?
    /// Whether a cancelled download leaves a token behind, by which another one goes on.
    public var producesResumeToken: Bool?
    /// The priority, from 0 to 1.
    public var priority: Double?
    /// The client's text.
    public var description: String?
    /// The earliest begin.
    public var earliestBegin: Date?
    /// The client's guess of the bytes to receive.
    public var expectedToReceive: ByteCount?
    /// The client's guess of the bytes to send.
    public var expectedToSend: ByteCount?
    /// The value of an `Authorization` field: the answer to a challenge, after which the task goes on.
    public var authorization: String?
    /// Whether somebody waits for the task now.
    ///
    /// It then runs at once, before all others of the session, on any network and whatever the power.
    /// That cannot be taken back.
    public var promotes: Bool?
    /// Whether a challenge is answered with no: the task then ends with the server's refusal.
    public var rejectsChallenge: Bool?
    /// The end of the attached client's attempt at a staging.
    public var stagingEnd: StagingEnd?
    /// The bytes of the attached client's attempt at a staging.
    public var stagingBytes: StagingBytes?

    /// Creates a change of nothing.
    public init() {}
}

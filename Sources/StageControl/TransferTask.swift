package import FoundationEssentials
package import StageModel

/// Request for a transfer.
package struct TransferRequest: Hashable, Codable, Sendable {
    /// Kind of the transfer.
    package enum Kind: String, Codable, Sendable, CaseIterable {
        /// Download from a server into a file.
        case download
        /// Upload of a file to a server.
        case upload
        /// Staging of packs in a container, by the attached client or else by a worker of the daemon.
        case staging
    }

    /// Token chosen by the client, unique within the session.
    ///
    /// Repeating a token yields the existing task, so a request whose response was lost can be repeated.
    package var token: String
    /// Kind of the transfer.
    package var kind: Kind
    /// Absolute http or https URL; for a staging, a text that identifies what is staged.
    package var url: String
    /// Details of a staging: packs, container and conditions.
    package var staging: StagingJob?
    /// Further URLs of the same content, for downloads with a digest.
    package var mirrors: [String]?
    /// Host names that the content may come from, including redirects: exact names, or `*.` and a name for all its
    /// subdomains.
    ///
    /// `nil` permits every host.
    package var allowedDomains: [String]?
    /// HTTP method: GET for downloads, POST or PUT for uploads.
    package var method: String?
    /// Header fields.
    package var headers: [String: String]?
    /// Exact size of the content, if it is known.
    package var size: ByteCount?
    /// SHA-256 digest of the content in 64 hexadecimal digits, if it is known.
    package var sha256: String?
    /// Absolute path of the file to upload.
    ///
    /// The daemon copies it before it responds.
    package var file: String?
    /// Earliest start of the task.
    package var earliestBegin: Date?
    /// Client's estimate of the bytes to receive, including headers.
    package var expectedToReceive: ByteCount?
    /// Client's estimate of the bytes to send, including headers.
    package var expectedToSend: ByteCount?
    /// Text of the client, kept with the task.
    package var description: String?
    /// Priority within the session, from 0 to 1; `nil` for 0.5.
    package var priority: Double?
    /// `true` if a person waits for the task.
    ///
    /// The task then runs at once, before all others of the session, under any network and power conditions, and without
    /// a delay of its session, of its launch or of ``earliestBegin``. This cannot be undone. ``TransferChange/promotes`` sets
    /// it for a task that exists.
    package var isPromoted: Bool?
    /// Makes the task wait until ``TransferChange/state`` is set to running.
    package var isSuspended: Bool?
    /// Allows the task on metered networks.
    ///
    /// The session's rule applies if it is stricter.
    package var allowsExpensiveNetworkAccess: Bool?
    /// No effect: no service of Linux reports a low data mode.
    package var allowsConstrainedNetworkAccess: Bool?
    /// Token of an earlier task's resume data (``SessionEvent/resumeToken``).
    package var resumeToken: String?
    /// `true` if a response with an error status completes the task, with its body; `nil` completes uploads and fails
    /// downloads.
    package var acceptsErrorResponses: Bool?
    /// `true` if a 401 or 407 is treated like any other response, although the session answers challenges.
    package var ignoresChallenges: Bool?
    /// `true` if the `Authorization` field of ``headers`` answers a challenge.
    ///
    /// Set by the daemon, which then hides the field from all clients: another member of the session's group may have
    /// answered.
    package var hasChallengeCredential: Bool?
    /// `true` if the request may be repeated without further effects on the server; `nil` to derive it from the method
    /// (RFC 9110, section 9.2.2).
    package var isIdempotent: Bool?
    /// `true` if the task fails instead of waiting: for another attempt, a delay that a server has requested, network or power
    /// conditions, disk space, quota, or the clock.
    ///
    /// It still waits for its date, for a pause, for an answer to a challenge, and for its turn.
    package var failsWithoutRetry: Bool?
    /// Presigned requests of an upload in parts.
    ///
    /// ``url`` then identifies the upload, and has the origin of the completion request. The daemon hides the parts
    /// from clients, since each URL is a credential.
    package var parts: UploadParts?

    /// Creates a request from its required members.
    package init(token: String, kind: Kind, url: String) {
        self.token = token
        self.kind = kind
        self.url = url
    }
}

/// Task of the daemon.
package struct TransferTask: Hashable, Codable, Sendable {
    /// State of a task.
    package enum State: String, Codable, Sendable {
        /// Waiting for the client to resume it.
        case suspended
        /// Waiting for the reasons in ``TransferTask/pendingReasons``.
        case waiting
        /// Running.
        case running
        /// Completed.
        case completed
        /// Failed.
        case failed
        /// Cancelled by the client.
        case cancelled
    }

    /// Placeholder for the value of a header field that the daemon hides.
    package static let hiddenValue = "(not shown)"

    /// Identifier of the task, never reused by the daemon.
    package var id: Int64
    /// Identifier of the session.
    package var session: String
    /// User who owns the session.
    package var user: UInt32
    /// Request of the task.
    package var request: TransferRequest
    /// State of the task.
    package var state: State
    /// Reasons why a waiting task does not run.
    package var pendingReasons: [PendingReason]
    /// Time of creation.
    package var created: Date
    /// Content bytes received so far.
    package var bytesReceived: ByteCount
    /// File bytes sent so far.
    package var bytesSent: ByteCount
    /// Total bytes of the content or file; `nil` while they are unknown.
    package var bytesExpected: ByteCount?
    /// Head of the last response; at most 4 KiB of header fields while the task is unfinished, and none once the heads of its
    /// user's unfinished tasks take 16 MiB of memory.
    package var response: TransferResponse?
    /// Number of requests.
    package var attempts: Int
    /// Failure of the last attempt, for people.
    package var lastProblem: String?

    /// Creates a task from its required members.
    package init(
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
        pendingReasons = []
        bytesReceived = .zero
        bytesSent = .zero
        attempts = 0
    }
}

/// Change of a task; members that are `nil` change nothing.
package struct TransferChange: Hashable, Codable, Sendable {
    /// State that a client can request.
    package enum State: String, Codable, Sendable {
        /// Running as soon as possible.
        case running
        /// Suspended until the client resumes it.
        case suspended
        /// Cancelled. Received bytes are kept for a week if ``TransferChange/producesResumeToken`` is set.
        case cancelled
        /// Paused by a person, regardless of the client.
        case paused
        /// No longer paused by a person.
        case unpaused
    }

    /// State to change to.
    package var state: State?
    /// Makes a cancelled download keep its received bytes, with a token to resume them.
    package var producesResumeToken: Bool?
    /// Priority, from 0 to 1.
    package var priority: Double?
    /// Text of the client.
    package var description: String?
    /// Earliest start of the task.
    package var earliestBegin: Date?
    /// Client's estimate of the bytes to receive.
    package var expectedToReceive: ByteCount?
    /// Client's estimate of the bytes to send.
    package var expectedToSend: ByteCount?
    /// Value of the `Authorization` field that answers a challenge and resumes the task.
    package var authorization: String?
    /// `true` if a person waits for the task now: sets ``TransferRequest/isPromoted``.
    ///
    /// The task then runs at once, before all others of the session, under any network and power conditions. This
    /// cannot be undone.
    package var promotes: Bool?
    /// Sets ``TransferRequest/failsWithoutRetry``, also for a wait that has begun.
    ///
    /// With ``promotes``, a delay that has begun ends, and the task fails at the next one.
    package var failsWithoutRetry: Bool?
    /// `true` if the client rejects a challenge.
    ///
    /// The task then ends with the server's response.
    package var rejectsChallenge: Bool?
    /// End of the attached client's attempt of a staging.
    package var stagingEnd: StagingEnd?
    /// Progress of the attached client's attempt of a staging.
    package var stagingBytes: StagingBytes?

    /// Creates an empty change.
    package init() {}
}

extension TransferTask {
    /// `true` if the task has completed, failed or been cancelled.
    package var hasEnded: Bool { [.completed, .failed, .cancelled].contains(state) }
}

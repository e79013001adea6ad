package import StageModel

/// Job to stage packs for a user, sent to the daemon and its workers.
///
/// Names either a registered application, or manifests and a container; and either packs, or an event that selects
/// them.
package struct StagingJob: Hashable, Codable, Sendable {
    /// Identifier of a registered application.
    package var application: String?
    /// URLs of a manifest in order of preference, if no application is named.
    package var manifests: [String]?
    /// Absolute path of the container; `nil` for that of the application's group.
    package var container: String?
    /// Installed version of the application, if no registration tells it.
    package var applicationVersion: String?
    /// Packs to stage; `nil` to let the event select them.
    package var packs: [String]?
    /// Stages the packs again, because the staged ones are damaged.
    package var isRepair: Bool?
    /// Event that selects the packs; `nil` to let the worker determine it.
    package var event: String?
    /// Limits the event to essential packs.
    package var isEssentialOnly: Bool?
    /// Network and power conditions to wait for; `nil` for none.
    package var conditions: UpdateConditions?
    /// Environment variables of the client that locate the user's files.
    package var environment: [String: String]?

    /// Names of the environment variables that a job may contain.
    package static let variables = [
        "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "CURL_CA_BUNDLE", "SSL_CERT_FILE",
    ]

    /// Creates an empty job.
    package init() {}

    /// True for the run of a timer, for which no person waits.
    package var isPeriodic: Bool { event == ContentRequest.periodic.rawValue }
}

/// End of an attempt to carry out a ``StagingJob``.
package struct StagingEnd: Hashable, Codable, Sendable {
    /// Reason why packs are missing; `nil` if all were staged.
    package var failure: TransferFailure?
    /// Reason for which the next attempt waits; `nil` if there must be none.
    package var pendingReason: PendingReason.Kind?

    /// Creates the end of an attempt that staged all packs.
    package init() {}

    /// Creates the end of a failed attempt.
    package init(_ failure: TransferFailure, pendingReason: PendingReason.Kind?) {
        self.failure = failure
        self.pendingReason = pendingReason
    }
}

/// Message to a worker: a ``StagingJob``, with what the daemon knows of earlier attempts.
///
/// A worker of another version than the daemon's reads the job alone.
package struct WorkerJob: Hashable, Codable, Sendable {
    /// The job.
    package var job: StagingJob
    /// Set if an earlier attempt to carry out the job has failed.
    package var isRepetition: Bool

    private enum Key: CodingKey { case isRepetition }

    /// Creates the message.
    package init(_ job: StagingJob, isRepetition: Bool) {
        self.job = job
        self.isRepetition = isRepetition
    }

    /// Decodes the message; without the member, the attempt is the first.
    package init(from decoder: any Decoder) throws {
        job = try StagingJob(from: decoder)
        let container = try decoder.container(keyedBy: Key.self)
        isRepetition = try container.decodeIfPresent(Bool.self, forKey: .isRepetition) ?? false
    }

    /// Encodes the message as one object.
    package func encode(to encoder: any Encoder) throws {
        try job.encode(to: encoder)
        var container = encoder.container(keyedBy: Key.self)
        if isRepetition { try container.encode(true, forKey: .isRepetition) }
    }
}

/// Progress of an attempt to carry out a ``StagingJob``.
package struct StagingBytes: Hashable, Codable, Sendable {
    /// Bytes of the packs received so far.
    package var received: ByteCount
    /// Total bytes of the packs.
    package var expected: ByteCount

    /// Creates the progress of an attempt.
    package init(received: ByteCount, expected: ByteCount) {
        self.received = received
        self.expected = expected
    }
}

/// Message of a worker that carries out a ``StagingJob``.
package struct WorkerMessage: Hashable, Codable, Sendable {
    /// Bytes of the packs received so far.
    package var bytesReceived: ByteCount?
    /// Total bytes of the packs.
    package var bytesExpected: ByteCount?
    /// End of the attempt, in the last message.
    package var end: StagingEnd?

    /// Creates an empty message.
    package init() {}
}

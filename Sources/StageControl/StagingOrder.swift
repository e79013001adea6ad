public import StageModel

/// Order to stage packs for a user, sent to the daemon and its workers.
///
/// Names either a registered application, or manifests and a container; and either packs, or an event that selects
/// them.
public struct StagingOrder: Hashable, Codable, Sendable {
    /// Identifier of a registered application.
    public var application: String?
    /// URLs of a manifest in order of preference, if no application is named.
    public var manifests: [String]?
    /// Absolute path of the container; `nil` for that of the application's group.
    public var container: String?
    /// Installed version of the application, if no registration tells it.
    public var applicationVersion: String?
    /// Packs to stage; `nil` to let the event select them.
    public var packs: [String]?
    /// Stages the packs again, because the staged ones are damaged.
    public var isRepair: Bool?
    /// Event that selects the packs; `nil` to let the worker determine it.
    public var event: String?
    /// Limits the event to essential packs.
    public var isEssentialOnly: Bool?
    /// Network and power conditions to wait for; `nil` for none.
    public var conditions: UpdateConditions?
    /// Environment variables of the client that locate the user's files.
    public var environment: [String: String]?

    /// Names of the environment variables that an order may contain.
    public static let variables = [
        "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "CURL_CA_BUNDLE", "SSL_CERT_FILE",
    ]

    /// Creates an empty order.
    public init() {}
}

/// End of an attempt to carry out a ``StagingOrder``.
public struct StagingEnd: Hashable, Codable, Sendable {
    /// Reason why packs are missing; `nil` if all were staged.
    public var failure: TransferFailure?
    /// Reason for which the next attempt waits; `nil` if there must be none.
    public var hold: PendingReason.Kind?

    /// Creates the end of an attempt that staged all packs.
    public init() {}

    /// Creates the end of a failed attempt.
    public init(_ failure: TransferFailure, hold: PendingReason.Kind?) {
        self.failure = failure
        self.hold = hold
    }
}

/// Progress of an attempt to carry out a ``StagingOrder``.
public struct StagingBytes: Hashable, Codable, Sendable {
    /// Bytes of the packs received so far.
    public var received: ByteCount
    /// Total bytes of the packs.
    public var expected: ByteCount

    /// Creates the progress of an attempt.
    public init(received: ByteCount, expected: ByteCount) {
        self.received = received
        self.expected = expected
    }
}

/// Message of a worker that carries out a ``StagingOrder``.
public struct WorkerMessage: Hashable, Codable, Sendable {
    /// Bytes of the packs received so far.
    public var bytesReceived: ByteCount?
    /// Total bytes of the packs.
    public var bytesExpected: ByteCount?
    /// End of the attempt, in the last message.
    public var end: StagingEnd?

    /// Creates an empty message.
    public init() {}
}

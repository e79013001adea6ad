public import StageModel

/// Packs that are to be staged for a user, as the daemon's worker is told.
///
/// An order names a registered application, or manifests and a container; packs, or an event that says
/// which.
public struct StagingOrder: Hashable, Codable, Sendable {
    /// The identifier of a registered application.
    public var application: String?
    /// The URLs of a manifest, the preferred one first, where no application is named.
    public var manifests: [String]?
    /// The absolute path of the container; that of the application's group if there is none.
    public var container: String?
    /// The installed version of the application, where no registration tells it.
    public var applicationVersion: String?
    /// The packs; without them the event decides.
    public var packs: [String]?
    /// Whether the packs are damaged, and staged again though they are there.
    public var isRepair: Bool?
    /// The event, where no packs are named; without one the worker finds out which it is.
    public var event: String?
    /// Whether an event stages essential packs only.
    public var isEssentialOnly: Bool?
    /// The conditions that it waits for; without them it waits for none.
    public var conditions: UpdateConditions?
    /// Variables of the client's environment that say where the user's files are.
    public var environment: [String: String]?

    /// The variables that an order may have.
    public static let variables = [
        "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "CURL_CA_BUNDLE", "SSL_CERT_FILE",
    ]

    /// Creates an order that names nothing yet.
    public init() {}
}

/// The end of an attempt to carry out a ``StagingOrder``.
public struct StagingEnd: Hashable, Codable, Sendable {
    /// The reason for missing packs; `nil` if none is missing.
    public var failure: TransferFailure?
    /// The reason for another attempt to wait; `nil` if no other attempt makes sense.
    public var hold: HoldReason?

    /// Creates the end of an attempt that staged everything.
    public init() {}

    /// Creates the end of an attempt that failed.
    public init(_ failure: TransferFailure, hold: HoldReason?) {
        self.failure = failure
        self.hold = hold
    }
}

/// The bytes of an attempt to carry out a ``StagingOrder``.
public struct StagingBytes: Hashable, Codable, Sendable {
    /// The bytes of the packs that are here.
    public var received: ByteCount
    /// The bytes of the packs in all.
    public var expected: ByteCount

    /// Creates the bytes of an attempt.
    public init(received: ByteCount, expected: ByteCount) {
        self.received = received
        self.expected = expected
    }
}

/// A message of a worker that carries out a ``StagingOrder``.
public struct WorkerMessage: Hashable, Codable, Sendable {
    /// The bytes of the packs that are here.
    public var bytesReceived: ByteCount?
    /// The bytes of the packs in all.
    public var bytesExpected: ByteCount?
    /// The end of the attempt, in the last message.
    public var end: StagingEnd?

    /// Creates a message without content.
    public init() {}
}

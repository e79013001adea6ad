/// What a session is asked to be: the rules for its transfers, and what is started when they have
/// ended.
///
/// A session belongs to a user and has an identifier that is the user's choice. It is kept until it
/// is removed, whatever becomes of the client and of the daemon.
public struct SessionConfiguration: Hashable, Codable, Sendable {
    /// Whether the daemon picks the time: on an unmetered network and mains power, with others.
    public var isDiscretionary = false
    /// Whether transfers run on networks that cost money by the byte.
    public var allowsExpensiveNetworkAccess = true
    /// Whether transfers run on networks that somebody asked to be spared.
    public var allowsConstrainedNetworkAccess = true
    /// Whether ``handler`` is started when transfers have ended and no client is attached.
    public var sendsLaunchEvents = true
    /// What is started then.
    public var handler: LaunchHandler?
    /// How many connections the session gets to one host at most.
    public var maximumConnectionsPerHost = 6
    /// Seconds without a byte after which an attempt counts as failed.
    public var requestTimeout = 60.0
    /// Seconds after the creation of a task when it is given up, with all attempts and waits.
    public var resourceTimeout = 604_800.0
    /// Header fields of every request that does not have them itself.
    public var headers: [String: String] = [:]
    /// Whether a 401 waits for an answer of the client instead of ending the task.
    public var answersChallenges = false
    /// The oldest version of TLS that servers may speak, `1.2` or `1.3`; without it 1.2.
    public var minimumTLSVersion: String?
    /// The protocol by which uploads resume that broke off: `resumable` (draft-ietf-httpbis-resumable-upload, interop
    /// version 6), `tus` (1.0), or `plain`, the same as without it, for none.
    public var uploadProtocol: String?
    /// A Unix group whose members see the session and may act on it; the creator must be one.
    public var group: String?
    /// Whether the session is removed once its tasks have ended and no client is attached.
    public var isTransient = false

    /// Creates the configuration of a session that starts transfers as soon as it can.
    public init() {}

    private enum CodingKeys: CodingKey {
        case isDiscretionary, allowsExpensiveNetworkAccess, allowsConstrainedNetworkAccess
        case sendsLaunchEvents, handler, maximumConnectionsPerHost, requestTimeout, resourceTimeout
        case headers, answersChallenges, group, isTransient, minimumTLSVersion
        case uploadProtocol
    }

    /// Decodes a configuration; what is not there has its default.
    public init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: CodingKeys.self)
        func read<Value: Decodable>(_ key: CodingKeys, _ fallback: Value) throws -> Value {
            try members.decodeIfPresent(Value.self, forKey: key) ?? fallback
        }
        isDiscretionary = try read(.isDiscretionary, isDiscretionary)
        allowsExpensiveNetworkAccess = try read(.allowsExpensiveNetworkAccess, true)
        allowsConstrainedNetworkAccess = try read(.allowsConstrainedNetworkAccess, true)
        sendsLaunchEvents = try read(.sendsLaunchEvents, true)
        handler = try members.decodeIfPresent(LaunchHandler.self, forKey: .handler)
        maximumConnectionsPerHost = try read(.maximumConnectionsPerHost, maximumConnectionsPerHost)
        requestTimeout = try read(.requestTimeout, requestTimeout)
        resourceTimeout = try read(.resourceTimeout, resourceTimeout)
        headers = try read(.headers, [:])
        answersChallenges = try read(.answersChallenges, false)
        minimumTLSVersion = try members.decodeIfPresent(String.self, forKey: .minimumTLSVersion)
        uploadProtocol = try members.decodeIfPresent(String.self, forKey: .uploadProtocol)
        group = try members.decodeIfPresent(String.self, forKey: .group)
        isTransient = try read(.isTransient, false)
    }
}

/// A program that takes the events of a session in when no client is there to do it.
///
/// It is started as the session's user, with `STAGEPACK_SESSION` (the session's identifier),
/// `STAGEPACK_LAUNCH` (the token of this launch) and `STAGEPACK_SOCKET` in its environment, and must
/// acknowledge the events before it ends.
public struct LaunchHandler: Hashable, Codable, Sendable {
    /// The absolute path of the program, and its arguments.
    public var command: [String]
    /// The working directory; `/` if there is none.
    public var directory: String?
    /// Further variables of its environment.
    public var environment: [String: String]?
    /// Says which version of the program this is: a new one is started though an older one failed.
    public var version: String?

    /// Creates a handler from its command.
    public init(command: [String]) { self.command = command }
}

/// A session as the daemon has it.
public struct SessionStatus: Hashable, Codable, Sendable {
    /// The identifier.
    public var identifier: String
    /// The number of the session, which no other session of this identifier ever gets: not after it was removed,
    /// and not after the daemon has lost its records.
    ///
    /// `nil` from daemons of earlier versions.
    public var number: Int64?
    /// The number of the user it belongs to.
    public var user: UInt32
    /// What it was asked to be.
    public var configuration: SessionConfiguration
    /// The number of tasks that have not ended.
    public var unfinishedTasks: Int
    /// The number of the last event; 0 before the first.
    public var lastEvent: Int64
    /// The number of the last event that was acknowledged.
    public var acknowledgedEvent: Int64
    /// Whether a client takes events in.
    public var isAttached: Bool
    /// How long tasks wait that a launched handler creates, in seconds.
    public var launchPenalty: Double
    /// How many launches in a row ended without acknowledgement.
    public var failedLaunches: Int

    /// Creates the status of a session that has no tasks yet.
    public init(identifier: String, user: UInt32, configuration: SessionConfiguration) {
        self.identifier = identifier
        self.user = user
        self.configuration = configuration
        unfinishedTasks = 0
        lastEvent = 0
        acknowledgedEvent = 0
        isAttached = false
        launchPenalty = 0
        failedLaunches = 0
    }
}

/// Settings of a session: rules for its transfers, and the handler to start when they have ended.
///
/// A session belongs to a user, who chooses its identifier. It exists until it is removed, even if the client or the
/// daemon ends.
package struct SessionConfiguration: Hashable, Codable, Sendable {
    /// Lets the daemon choose the time: on an unmetered network and external power, spread over some minutes.
    package var isDiscretionary = false
    /// Allows transfers on metered networks.
    package var allowsExpensiveNetworkAccess = true
    /// No effect: no service of Linux reports a low data mode.
    package var allowsConstrainedNetworkAccess = true
    /// Starts ``handler`` when all transfers have ended and no client is attached.
    package var sendsLaunchEvents = true
    /// Program that the daemon starts for the session's events.
    package var handler: LaunchHandler?
    /// Maximum number of the session's connections to one host.
    package var maximumConnectionsPerHost = 6
    /// Seconds without data after which an attempt fails.
    package var requestTimeout = 60.0
    /// Seconds from the creation of a task to its deadline, all attempts and delays included.
    package var resourceTimeout = 604_800.0
    /// Header fields for every request that does not set them itself.
    package var headers: [String: String] = [:]
    /// Asks the client to answer challenges (401 and 407), which end the task otherwise.
    package var answersChallenges = false
    /// Minimum TLS version of servers, `1.2` or `1.3`; `nil` for 1.2.
    package var minimumTLSVersion: String?
    /// Protocol of resumable uploads; `nil` or `plain` for none.
    ///
    /// `resumable` is draft-ietf-httpbis-resumable-upload, interop version 6; `tus` is version 1.0.
    package var uploadProtocol: String?
    /// Unix group whose members may see and change the session.
    ///
    /// The creator must be a member.
    package var group: String?
    /// Removes the session once all its tasks have ended and no client is attached.
    package var isTransient = false

    /// Creates the default configuration, whose transfers start as soon as possible.
    package init() {}

    private enum CodingKeys: CodingKey {
        case isDiscretionary, allowsExpensiveNetworkAccess, allowsConstrainedNetworkAccess
        case sendsLaunchEvents, handler, maximumConnectionsPerHost, requestTimeout, resourceTimeout
        case headers, answersChallenges, group, isTransient, minimumTLSVersion
        case uploadProtocol
    }

    /// Decodes a configuration; missing members get their defaults.
    package init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: CodingKeys.self)
        func read<Value: Decodable>(_ key: CodingKeys, default fallback: Value) throws -> Value {
            try members.decodeIfPresent(Value.self, forKey: key) ?? fallback
        }
        isDiscretionary = try read(.isDiscretionary, default: isDiscretionary)
        allowsExpensiveNetworkAccess = try read(.allowsExpensiveNetworkAccess, default: true)
        allowsConstrainedNetworkAccess = try read(.allowsConstrainedNetworkAccess, default: true)
        sendsLaunchEvents = try read(.sendsLaunchEvents, default: true)
        handler = try members.decodeIfPresent(LaunchHandler.self, forKey: .handler)
        maximumConnectionsPerHost = try read(
            .maximumConnectionsPerHost,
            default: maximumConnectionsPerHost
        )
        requestTimeout = try read(.requestTimeout, default: requestTimeout)
        resourceTimeout = try read(.resourceTimeout, default: resourceTimeout)
        headers = try read(.headers, default: [:])
        answersChallenges = try read(.answersChallenges, default: false)
        minimumTLSVersion = try members.decodeIfPresent(String.self, forKey: .minimumTLSVersion)
        uploadProtocol = try members.decodeIfPresent(String.self, forKey: .uploadProtocol)
        group = try members.decodeIfPresent(String.self, forKey: .group)
        isTransient = try read(.isTransient, default: false)
    }
}

/// Program that processes a session's events when no client is attached.
///
/// The daemon starts it as the session's user, with `STAGEPACK_SESSION` (the session's identifier),
/// `STAGEPACK_LAUNCH` (the token of this launch) and `STAGEPACK_SOCKET` in its environment. It must acknowledge the
/// events before it exits.
public struct LaunchHandler: Hashable, Codable, Sendable {
    /// Absolute path of the program, and its arguments.
    public var command: [String]
    /// Working directory; `nil` for `/`.
    public var directory: String?
    /// Additional environment variables.
    public var environment: [String: String]?
    /// Version of the program.
    ///
    /// A new version is started even if an earlier one has failed too often.
    public var version: String?

    /// Creates a handler from its command.
    public init(command: [String]) { self.command = command }
}

/// Status of a session.
package struct SessionStatus: Hashable, Codable, Sendable {
    /// Identifier of the session.
    package var identifier: String
    /// Number of the session, never reused for the same identifier, even after the session was removed or the daemon
    /// has lost its journal; 0 until it is set.
    package var number: Int64
    /// User who owns the session.
    package var user: UInt32
    /// Settings of the session.
    package var configuration: SessionConfiguration
    /// Number of unfinished tasks.
    package var unfinishedTasks: Int
    /// Sequence number of the last event; 0 before the first.
    package var lastEvent: Int64
    /// Sequence number of the last acknowledged event.
    package var acknowledgedEvent: Int64
    /// `true` while a client is attached.
    package var isAttached: Bool
    /// Delay in seconds of tasks that a launched handler creates.
    package var launchPenalty: Double
    /// Number of consecutive launches that ended without acknowledgement.
    package var failedLaunches: Int

    /// Creates the status of a session without tasks.
    package init(identifier: String, user: UInt32, configuration: SessionConfiguration) {
        self.identifier = identifier
        number = 0
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

public import FoundationEssentials

/// Reason why a task waits, with its end and cause.
public struct PendingReason: Hashable, Codable, Sendable {
    /// Stable codes of the reasons why a task waits.
    @nonexhaustive
    public enum Kind: RawRepresentable, Hashable, Codable, Sendable, CaseIterable {
        /// The client has suspended the task.
        case pausedByClient
        /// A person has paused the task.
        case pausedByUser
        /// The task's earliest start is in the future.
        case earliestBegin
        /// There is no network.
        case offline
        /// A captive portal requires a login.
        case portal
        /// The network is metered.
        case metered
        /// The machine runs on battery power.
        case onBattery
        /// The machine saves power.
        case powerSaver
        /// The session is discretionary, and the time that the daemon has chosen is in the future.
        case discretionary
        /// The disk is full or, if there is a problem, cannot be written.
        case disk
        /// Other tasks use the resource that the task waits for.
        case slot
        /// The last attempt failed, and the next one is delayed.
        case backoff
        /// The server asked for a delay (`Retry-After`).
        case server
        /// The session's handler was launched often recently.
        case penalty
        /// The user has reached a limit of bytes or tasks.
        case quota
        /// The certificate is not valid at the time of this machine's clock, which seems to be wrong.
        case clock
        /// The task waits for credentials, since the server sent a challenge.
        case authentication
        /// A reason that this version does not know, sent by a newer daemon.
        case other(String)

        /// The reasons that this version knows.
        public static let allCases: [Kind] = [
            .pausedByClient, .pausedByUser, .earliestBegin, .offline, .portal, .metered,
            .onBattery, .powerSaver, .discretionary, .disk, .slot, .backoff, .server, .penalty,
            .quota, .clock, .authentication,
        ]

        /// Creates the code with a text; never `nil`.
        public init?(rawValue: String) {
            self = Self.allCases.first { $0.rawValue == rawValue } ?? .other(rawValue)
        }

        /// Text of the code in JSON.
        public var rawValue: String {
            switch self {
            case .pausedByClient: "pausedByClient"
            case .pausedByUser: "pausedByUser"
            case .earliestBegin: "earliestBegin"
            case .offline: "offline"
            case .portal: "portal"
            case .metered: "metered"
            case .onBattery: "onBattery"
            case .powerSaver: "powerSaver"
            case .discretionary: "discretionary"
            case .disk: "disk"
            case .slot: "slot"
            case .backoff: "backoff"
            case .server: "server"
            case .penalty: "penalty"
            case .quota: "quota"
            case .clock: "clock"
            case .authentication: "authentication"
            case .other(let code): code
            }
        }
    }

    /// Stable codes of the resources that tasks share.
    @nonexhaustive
    public enum Resource: RawRepresentable, Hashable, Codable, Sendable, CaseIterable {
        /// The connections of the daemon.
        case connections
        /// The connections to the host of the task.
        case hostConnections
        /// The connections of the session to the host of the task.
        case sessionConnections
        /// The workers of the user, or of all users.
        case workers
        /// The content, which another task downloads.
        case content
        /// A resource that this version does not know, sent by a newer daemon.
        case other(String)

        /// The resources that this version knows.
        public static let allCases: [Resource] = [
            .connections, .hostConnections, .sessionConnections, .workers, .content,
        ]

        /// Creates the code with a text; never `nil`.
        public init?(rawValue: String) {
            self = Self.allCases.first { $0.rawValue == rawValue } ?? .other(rawValue)
        }

        /// Text of the code in JSON.
        public var rawValue: String {
            switch self {
            case .connections: "connections"
            case .hostConnections: "hostConnections"
            case .sessionConnections: "sessionConnections"
            case .workers: "workers"
            case .content: "content"
            case .other(let code): code
            }
        }
    }

    /// Code of the reason.
    public var kind: Kind
    /// Date at which the wait ends, if it ends by time.
    public var until: Date?
    /// Failure of the last attempt, for people, if it caused the wait.
    public var problem: String?
    /// Resource that other tasks use, if the task waits for one.
    public var resource: Resource?

    /// Creates a reason.
    public init(
        _ kind: Kind,
        until: Date? = nil,
        problem: String? = nil,
        resource: Resource? = nil
    ) {
        self.kind = kind
        self.until = until
        self.problem = problem
        self.resource = resource
    }

    private enum CodingKeys: String, CodingKey {
        case kind = "reason"
        case until, problem, resource
    }
}

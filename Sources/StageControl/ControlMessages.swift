/// Status of the daemon.
public struct ServiceStatus: Hashable, Codable, Sendable {
    /// Version of the program.
    public var version: String
    /// Process identifier of the daemon.
    public var process: Int
    /// User of the client, as the daemon sees it.
    public var user: UInt32
    /// Number of the client's unfinished tasks.
    public var unfinishedTasks: Int
    /// Network and power conditions, as shown by `stagepack why`.
    public var conditions: [String: String]
    /// Absolute path of the directory with the client's finished downloads, each named by the identifier of its task.
    public var staged: String?
    /// The versions of the libraries that the daemon is linked with, by their names.
    public var libraries: [String: String]?

    /// Creates a status.
    public init(
        version: String,
        process: Int,
        user: UInt32,
        unfinishedTasks: Int,
        conditions: [String: String],
        staged: String? = nil,
        libraries: [String: String]? = nil
    ) {
        self.version = version
        self.process = process
        self.user = user
        self.unfinishedTasks = unfinishedTasks
        self.conditions = conditions
        self.staged = staged
        self.libraries = libraries
    }
}

/// Request to create tasks, all or none.
public struct NewTasks: Codable, Sendable {
    /// The tasks.
    public var tasks: [TransferRequest]
    /// Token of the launch that started the client, if one did.
    public var launch: String?

    /// Creates a message.
    public init(_ tasks: [TransferRequest], launch: String? = nil) {
        self.tasks = tasks
        self.launch = launch
    }
}

/// List of tasks.
public struct TaskList: Codable, Sendable {
    /// The tasks.
    public var tasks: [TransferTask]

    /// Creates a message.
    public init(_ tasks: [TransferTask]) { self.tasks = tasks }
}

/// Identifiers of the created tasks, in the order of the request.
public struct CreatedTasks: Codable, Sendable {
    /// The identifiers.
    public var ids: [Int64]

    /// Creates a message.
    public init(_ ids: [Int64]) { self.ids = ids }
}

/// Change of one task.
public struct TaskChange: Hashable, Codable, Sendable {
    /// Identifier of the task.
    public var task: Int64
    /// The change.
    public var change: TransferChange

    /// Creates a message.
    public init(_ task: Int64, change: TransferChange) {
        self.task = task
        self.change = change
    }
}

/// Changes of tasks in one session, which succeed or fail independently.
///
/// Each task may appear once.
public struct TaskChanges: Codable, Sendable {
    /// The changes.
    public var changes: [TaskChange]

    /// Creates a message.
    public init(_ changes: [TaskChange]) { self.changes = changes }
}

/// Result of a request to change tasks.
public struct ChangedTasks: Codable, Sendable {
    /// Refusal of one change.
    public struct Refusal: Hashable, Codable, Sendable {
        /// Identifier of the task.
        public var task: Int64
        /// The reason.
        public var refusal: ControlRefusal

        /// Creates a message.
        public init(_ task: Int64, refusal: ControlRefusal) {
            self.task = task
            self.refusal = refusal
        }
    }

    /// The refusals; all other changes are on disk.
    public var refusals: [Refusal]

    /// Creates a message.
    public init(_ refusals: [Refusal]) { self.refusals = refusals }
}

/// List of sessions.
public struct SessionList: Codable, Sendable {
    /// The sessions.
    public var sessions: [SessionStatus]

    /// Creates a message.
    public init(_ sessions: [SessionStatus]) { self.sessions = sessions }
}

/// Reason why the daemon refused a request; the body of every response with a status of 400 or more.
public struct ControlRefusal: Error, Hashable, Codable, Sendable, CustomStringConvertible {
    /// Stable codes of the reasons.
    public enum Code: String, Codable, Sendable {
        /// The daemon does not understand the request (400).
        case malformed
        /// A value in the request is invalid (422).
        case invalid
        /// The client lacks permission (403).
        case forbidden
        /// The resource does not exist, or belongs to another user (404).
        case notFound
        /// The current state does not permit the request: another client is attached, or the task has ended (409).
        case conflict
        /// The user has reached a limit of tasks, bytes or sessions (429).
        case quota
        /// The request is too large (413).
        case tooLarge
        /// The disk is full or unusable (507).
        case storage
        /// The daemon is shutting down or overloaded (503).
        case unavailable
    }

    /// Code of the reason.
    public var code: Code
    /// The reason, for people.
    public var message: String

    /// Creates a refusal.
    public init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    /// The reason, as a sentence fragment for people.
    public var description: String { message }
}

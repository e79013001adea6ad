/// What the daemon says of itself.
public struct ServiceStatus: Hashable, Codable, Sendable {
    /// The version of the program.
    public var version: String
    /// The number of the daemon's process.
    public var process: Int
    /// The user that the daemon takes the client for.
    public var user: UInt32
    /// The client's tasks that have not ended.
    public var unfinishedTasks: Int
    /// The conditions, as `stagepack why` shows them.
    public var conditions: [String: String]
    /// The absolute path of the directory that the client finds its finished downloads in, each a file by
    /// the number of its task.
    public var staged: String?

    /// Creates a status.
    public init(
        version: String,
        process: Int,
        user: UInt32,
        unfinishedTasks: Int,
        conditions: [String: String],
        staged: String? = nil
    ) {
        self.version = version
        self.process = process
        self.user = user
        self.unfinishedTasks = unfinishedTasks
        self.conditions = conditions
        self.staged = staged
    }
}

/// Tasks to be created, all or none.
public struct NewTasks: Codable, Sendable {
    /// The tasks.
    public var tasks: [TransferRequest]
    /// The token of the launch that the client was started by, if it was.
    public var launch: String?

    /// Creates a message.
    public init(_ tasks: [TransferRequest], launch: String? = nil) {
        self.tasks = tasks
        self.launch = launch
    }
}

/// The tasks that were created, in the order of the request, or that a question is answered with.
public struct TaskList: Codable, Sendable {
    /// The tasks.
    public var tasks: [TransferTask]

    /// Creates a message.
    public init(_ tasks: [TransferTask]) { self.tasks = tasks }
}

/// The numbers of tasks that were created, in the order of the request.
public struct CreatedTasks: Codable, Sendable {
    /// The numbers.
    public var ids: [Int64]

    /// Creates a message.
    public init(_ ids: [Int64]) { self.ids = ids }
}

/// A change of one task.
public struct TaskChange: Hashable, Codable, Sendable {
    /// The number of the task.
    public var task: Int64
    /// The change.
    public var change: TransferChange

    /// Creates a message.
    public init(_ task: Int64, _ change: TransferChange) {
        self.task = task
        self.change = change
    }
}

/// Changes of tasks of one session, each made or refused by itself; a task is named once.
public struct TaskChanges: Codable, Sendable {
    /// The changes.
    public var changes: [TaskChange]

    /// Creates a message.
    public init(_ changes: [TaskChange]) { self.changes = changes }
}

/// The changes of a request that were refused.
public struct ChangedTasks: Codable, Sendable {
    /// The refusal of one change.
    public struct Refusal: Hashable, Codable, Sendable {
        /// The number of the task.
        public var task: Int64
        /// The reason.
        public var refusal: ControlRefusal

        /// Creates a message.
        public init(_ task: Int64, _ refusal: ControlRefusal) {
            self.task = task
            self.refusal = refusal
        }
    }

    /// The refusals; all other changes are on disk.
    public var refusals: [Refusal]

    /// Creates a message.
    public init(_ refusals: [Refusal]) { self.refusals = refusals }
}

/// Sessions.
public struct SessionList: Codable, Sendable {
    /// The sessions.
    public var sessions: [SessionStatus]

    /// Creates a message.
    public init(_ sessions: [SessionStatus]) { self.sessions = sessions }
}

/// Why the daemon refused a request: the body of every answer whose status is 400 or more.
public struct ControlRefusal: Error, Hashable, Codable, Sendable, CustomStringConvertible {
    /// The reasons, which stay the same.
    public enum Code: String, Codable, Sendable {
        /// The request is none that the daemon understands (400).
        case malformed
        /// A value in it is none that can be used (422).
        case invalid
        /// The client may not do that (403).
        case forbidden
        /// There is no such thing (404), or it is somebody else's.
        case notFound
        /// It contradicts what is: another client is attached, or the task has ended (409).
        case conflict
        /// The user has as many tasks or bytes as one may (429).
        case quota
        /// The request is too large (413).
        case tooLarge
        /// The disk is full or cannot be used (507).
        case storage
        /// The daemon is ending, or failed (503).
        case unavailable
    }

    /// The reason.
    public var code: Code
    /// The reason, in words for a person.
    public var message: String

    /// Creates a refusal.
    public init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    /// The reason, as a sentence fragment a person can read.
    public var description: String { message }
}

/// Status of the daemon.
package struct ServiceStatus: Hashable, Codable, Sendable {
    /// Version of the program.
    package var version: String
    /// Process identifier of the daemon.
    package var process: Int
    /// User of the client, as the daemon sees it.
    package var user: UInt32
    /// Number of the client's unfinished tasks.
    package var unfinishedTasks: Int
    /// Network and power conditions, as shown by `stagepack why`.
    package var conditions: [String: String]
    /// Absolute path of the directory with the client's finished downloads, each named by the identifier of its task.
    package var staged: String?
    /// The versions of the libraries that the daemon is linked with, by their names.
    package var libraries: [String: String]?

    /// Creates a status.
    package init(
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
package struct NewTasks: Codable, Sendable {
    /// The tasks.
    package var tasks: [TransferRequest]
    /// Token of the launch that started the client, if one did.
    package var launch: String?

    /// Creates a message.
    package init(_ tasks: [TransferRequest], launch: String? = nil) {
        self.tasks = tasks
        self.launch = launch
    }
}

/// List of tasks.
package struct TaskList: Codable, Sendable {
    /// The tasks.
    package var tasks: [TransferTask]

    /// Creates a message.
    package init(_ tasks: [TransferTask]) { self.tasks = tasks }
}

/// Identifiers of the created tasks, in the order of the request.
package struct CreatedTasks: Codable, Sendable {
    /// The identifiers.
    package var ids: [Int64]

    /// Creates a message.
    package init(_ ids: [Int64]) { self.ids = ids }
}

/// Change of one task.
package struct TaskChange: Hashable, Codable, Sendable {
    /// Identifier of the task.
    package var task: Int64
    /// The change.
    package var change: TransferChange

    /// Creates a message.
    package init(_ task: Int64, change: TransferChange) {
        self.task = task
        self.change = change
    }
}

/// Changes of tasks in one session, which succeed or fail independently.
///
/// Each task may appear once.
package struct TaskChanges: Codable, Sendable {
    /// The changes.
    package var changes: [TaskChange]

    /// Creates a message.
    package init(_ changes: [TaskChange]) { self.changes = changes }
}

/// Result of a request to change tasks.
package struct ChangedTasks: Codable, Sendable {
    /// Refusal of one change.
    package struct Refusal: Hashable, Codable, Sendable {
        /// Identifier of the task.
        package var task: Int64
        /// The reason.
        package var refusal: ControlRefusal

        /// Creates a message.
        package init(_ task: Int64, refusal: ControlRefusal) {
            self.task = task
            self.refusal = refusal
        }
    }

    /// The refusals; all other changes are on disk.
    package var refusals: [Refusal]

    /// Creates a message.
    package init(_ refusals: [Refusal]) { self.refusals = refusals }
}

/// List of sessions.
package struct SessionList: Codable, Sendable {
    /// The sessions.
    package var sessions: [SessionStatus]

    /// Creates a message.
    package init(_ sessions: [SessionStatus]) { self.sessions = sessions }
}

/// Reason why the daemon refused a request; the body of every response with a status of 400 or more.
package struct ControlRefusal: Error, Hashable, Codable, Sendable, CustomStringConvertible {
    /// Stable codes of the reasons.
    package enum Code: String, Codable, Sendable {
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
        /// The user has reached a limit of tasks, bytes, sessions or event streams (429).
        case quota
        /// The request is too large (413).
        case tooLarge
        /// The disk is full or unusable (507).
        case storage
        /// The daemon is shutting down or overloaded (503).
        case unavailable
    }

    /// Code of the reason.
    package var code: Code
    /// The reason, for people.
    package var message: String

    /// Creates a refusal.
    package init(_ code: Code, message: String) {
        self.code = code
        self.message = message
    }

    /// The reason, as a sentence fragment for people.
    package var description: String { message }
}

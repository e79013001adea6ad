import FoundationEssentials
import StageModel

/// A question to the daemon, with the type of its answer.
public struct ControlRequest<Answer: Decodable & Sendable>: Sendable {
    /// The method of HTTP.
    let method: String
    /// The path and query.
    let target: String
    /// The body, if there is one; it is not sent where it could not be written.
    let body: Result<[UInt8], ControlError>?

    /// Creates a question without a body.
    init(_ method: String, _ path: String, all: Bool = false, headers: Bool = false) {
        self.method = method
        let query = [all ? "all=1" : nil, headers ? "headers=1" : nil].compactMap(\.self)
        let suffix = query.isEmpty ? "" : "?\(query.joined(separator: "&"))"
        target = "/\(ControlFormat.version)/\(path)\(suffix)"
        body = nil
    }

    /// Creates a question with a value as its body.
    init(_ method: String, _ path: String, _ value: some Encodable) {
        self.method = method
        target = "/\(ControlFormat.version)/\(path)"
        do {
            body = .success(Array(try ControlFormat.encode(value)))
        } catch {
            body = .failure(
                .refused(ControlRefusal(.invalid, "a value cannot be sent: \(error)"))
            )
        }
    }

    /// The bytes that go to the daemon, which closes the connection after its answer.
    func bytes() throws(ControlError) -> [UInt8] {
        let content = try body?.get() ?? []
        var head = "\(method) \(target) HTTP/1.1\r\nHost: stagepack\r\nConnection: close\r\n"
        if body != nil {
            head += "Content-Type: application/json\r\nContent-Length: \(content.count)\r\n"
        }
        return Array("\(head)\r\n".utf8) + content
    }
}

/// The answer of a request that has none but its success.
public struct NoContent: Decodable, Hashable, Sendable {
    /// Creates the answer.
    public init() {}
}

extension ControlRequest where Answer == ServiceStatus {
    /// Asks what the daemon says of itself.
    public static var status: Self { Self("GET", "") }
}

extension ControlRequest where Answer == SessionList {
    /// Asks for the sessions, of all users if the client may see them.
    public static func sessions(all: Bool = false) -> Self { Self("GET", "sessions", all: all) }
}

extension ControlRequest where Answer == SessionStatus {
    /// Asks to make a session, or to change the one that there is.
    public static func makeSession(
        _ identifier: String,
        _ configuration: SessionConfiguration
    ) -> Self {
        Self("PUT", "sessions/\(identifier.percentEncoded())", configuration)
    }

    /// Asks for a session.
    public static func session(_ identifier: String) -> Self {
        Self("GET", "sessions/\(identifier.percentEncoded())")
    }
}

extension ControlRequest where Answer == CreatedTasks {
    /// Asks to create tasks, all or none.
    public static func createTasks(_ tasks: NewTasks, in session: String) -> Self {
        Self("POST", "sessions/\(session.percentEncoded())/tasks", tasks)
    }
}

extension ControlRequest where Answer == ChangedTasks {
    /// Asks to change tasks of a session.
    static func changeTasks(_ changes: TaskChanges, in session: String) -> Self {
        Self("PATCH", "sessions/\(session.percentEncoded())/tasks", changes)
    }
}

extension ControlRequest where Answer == TaskList {
    /// Asks for the tasks of a session, with the header fields of those that the client's user has created.
    public static func tasks(in session: String, headers: Bool = false) -> Self {
        Self("GET", "sessions/\(session.percentEncoded())/tasks", headers: headers)
    }

    /// Asks for the tasks of all sessions, of all users if the client may see them.
    public static func tasks(all: Bool = false) -> Self { Self("GET", "tasks", all: all) }
}

extension ControlRequest where Answer == TransferTask {
    /// Asks for a task, with its header fields if the client's user has created it.
    public static func task(_ id: Int64, headers: Bool = false) -> Self {
        Self("GET", "tasks/\(id)", headers: headers)
    }

    /// Asks to change a task.
    public static func change(_ id: Int64, _ change: TransferChange) -> Self {
        Self("PATCH", "tasks/\(id)", change)
    }
}

extension ControlRequest where Answer == NoContent {
    /// Asks to cancel the tasks of a session and to forget it.
    public static func removeSession(_ identifier: String) -> Self {
        Self("DELETE", "sessions/\(identifier.percentEncoded())")
    }

    /// Says what the client has taken in.
    public static func acknowledge(_ acknowledgement: Acknowledgement, in session: String) -> Self {
        Self("POST", "sessions/\(session.percentEncoded())/acknowledge", acknowledgement)
    }

    /// Asks for more time for a launched handler.
    public static func extend(_ session: String) -> Self {
        Self("POST", "sessions/\(session.percentEncoded())/extend")
    }
}

extension ControlRequest where Answer == SessionEvent {
    /// Attaches to a session and asks for its events after one that is known.
    ///
    /// `launch` is the token of the launch that this process was started by, if it was.
    public static func events(
        of session: String,
        after sequence: Int64 = 0,
        launch: String? = nil
    ) -> Self {
        let token = launch.map { "&launch=\($0.percentEncoded())" } ?? ""
        return Self("GET", "sessions/\(session.percentEncoded())/events?after=\(sequence)\(token)")
    }

    /// Asks for what happens in all sessions, of all users if the client may see them.
    public static func watch(all: Bool = false) -> Self { Self("GET", "events", all: all) }
}

import FoundationEssentials
import StageModel

/// Request to the daemon, with the type of its response.
package struct ControlRequest<Answer: Decodable & Sendable>: Sendable {
    /// HTTP method.
    let method: String
    /// Path and query.
    let target: String
    /// Body, or the error of encoding it, which is thrown when the request is sent; `nil` without a body.
    let body: Result<[UInt8], ControlError>?

    /// Creates a request without a body.
    init(
        _ method: String,
        path: String,
        all: Bool = false,
        headers: Bool = false,
        token: String? = nil
    ) {
        self.method = method
        let members = [
            all ? "all=1" : nil, headers ? "headers=1" : nil,
            token.map { "token=\($0.percentEncoded())" },
        ]
        let query = members.compactMap(\.self)
        let suffix = query.isEmpty ? "" : "?\(query.joined(separator: "&"))"
        target = "/\(ControlFormat.version)/\(path)\(suffix)"
        body = nil
    }

    /// Creates a request with a JSON body.
    init(_ method: String, path: String, body value: some Encodable) {
        self.method = method
        target = "/\(ControlFormat.version)/\(path)"
        do {
            body = .success(Array(try ControlFormat.encode(value)))
        } catch {
            body = .failure(
                .refused(ControlRefusal(.invalid, message: "a value cannot be sent: \(error)"))
            )
        }
    }

    /// Returns the encoded request.
    ///
    /// It asks the daemon to close the connection after the response.
    func bytes() throws(ControlError) -> [UInt8] {
        let content = try body?.get() ?? []
        var head = "\(method) \(target) HTTP/1.1\r\nHost: stagepack\r\nConnection: close\r\n"
        if body != nil {
            head += "Content-Type: application/json\r\nContent-Length: \(content.count)\r\n"
        }
        return Array("\(head)\r\n".utf8) + content
    }
}

/// Response without content.
package struct NoContent: Decodable, Hashable, Sendable {
    /// Creates the response.
    package init() {}
}

extension ControlRequest where Answer == ServiceStatus {
    /// Requests the daemon's status.
    package static var status: Self { Self("GET", path: "") }
}

extension ControlRequest where Answer == String {
    /// Requests the daemon's metrics as text for Prometheus; with `all` set, those of all users, for root.
    package static func metrics(all: Bool = false) -> Self {
        Self("GET", path: "metrics", all: all)
    }
}

extension ControlRequest where Answer == SessionList {
    /// Requests the sessions that the client may use; with `all` set, those of all users, for root.
    package static func sessions(all: Bool = false) -> Self {
        Self("GET", path: "sessions", all: all)
    }
}

extension ControlRequest where Answer == SessionStatus {
    /// Creates a session, or changes the configuration of an existing one.
    package static func makeSession(
        _ identifier: String,
        configuration: SessionConfiguration
    ) -> Self {
        Self("PUT", path: "sessions/\(identifier.percentEncoded())", body: configuration)
    }

    /// Requests a session.
    package static func session(_ identifier: String) -> Self {
        Self("GET", path: "sessions/\(identifier.percentEncoded())")
    }
}

extension ControlRequest where Answer == CreatedTasks {
    /// Creates tasks, all or none.
    package static func createTasks(_ tasks: NewTasks, in session: String) -> Self {
        Self("POST", path: "sessions/\(session.percentEncoded())/tasks", body: tasks)
    }
}

extension ControlRequest where Answer == ChangedTasks {
    /// Changes tasks of a session.
    static func changeTasks(_ changes: TaskChanges, in session: String) -> Self {
        Self("PATCH", path: "sessions/\(session.percentEncoded())/tasks", body: changes)
    }
}

extension ControlRequest where Answer == TaskList {
    /// Requests the tasks of a session; with `token`, only those whose token is this text, or begins with it and '/'.
    ///
    /// With `headers` set, tasks that the client's user created include their header fields.
    package static func tasks(
        in session: String,
        named token: String? = nil,
        headers: Bool = false
    ) -> Self {
        let path = "sessions/\(session.percentEncoded())/tasks"
        return Self("GET", path: path, headers: headers, token: token)
    }

    /// Requests the tasks of all sessions that the client may use; with `all` set, those of all users, for root.
    package static func tasks(all: Bool = false) -> Self { Self("GET", path: "tasks", all: all) }
}

extension ControlRequest where Answer == TransferTask {
    /// Requests a task.
    ///
    /// With `headers` set, it includes its header fields if the client's user created it.
    package static func task(_ id: Int64, headers: Bool = false) -> Self {
        Self("GET", path: "tasks/\(id)", headers: headers)
    }

    /// Changes a task.
    package static func change(_ id: Int64, by change: TransferChange) -> Self {
        Self("PATCH", path: "tasks/\(id)", body: change)
    }
}

extension ControlRequest where Answer == NoContent {
    /// Cancels the tasks of a session and removes it.
    package static func removeSession(_ identifier: String) -> Self {
        Self("DELETE", path: "sessions/\(identifier.percentEncoded())")
    }

    /// Acknowledges events.
    package static func acknowledge(_ acknowledgement: Acknowledgement, in session: String) -> Self
    {
        Self(
            "POST",
            path: "sessions/\(session.percentEncoded())/acknowledge",
            body: acknowledgement
        )
    }

    /// Extends the time limit of a launched handler.
    package static func extend(_ session: String) -> Self {
        Self("POST", path: "sessions/\(session.percentEncoded())/extend")
    }
}

extension ControlRequest where Answer == SessionEvent {
    /// Attaches to a session, and requests its events after a sequence number.
    ///
    /// `launch` is the token of the launch that started this process, if one did.
    package static func events(
        of session: String,
        after sequence: Int64 = 0,
        launch: String? = nil
    ) -> Self {
        let token = launch.map { "&launch=\($0.percentEncoded())" } ?? ""
        return Self(
            "GET",
            path: "sessions/\(session.percentEncoded())/events?after=\(sequence)\(token)"
        )
    }

    /// Requests the events of all sessions that the client may use; with `all` set, those of all users, for root.
    package static func watch(all: Bool = false) -> Self { Self("GET", path: "events", all: all) }
}

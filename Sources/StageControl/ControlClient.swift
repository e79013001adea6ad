import StageModel
import StageSystem
import SystemPackage

/// Client of the daemon's control socket, which opens a connection for each request.
///
/// The asynchronous methods do not block a thread of the concurrency pool; cancelling their task closes the
/// connection. ``answer(to:timeout:)`` and ``openEvents(_:)`` block.
package struct ControlClient: Sendable {
    /// Timeout of the first response from a daemon.
    ///
    /// It is short, so that processes which can work without a daemon do not wait for one that hangs.
    package static let discoveryTimeout = Duration.seconds(3)
    /// Default timeout of further responses.
    package static let defaultTimeout = Duration.seconds(30)

    /// Path of the daemon's socket.
    package let path: String
    /// Directory of this user's finished downloads; `nil` if the daemon was not asked.
    package private(set) var downloads: DownloadDirectory?
    /// Maximum time without data from the daemon during a request; `nil` for no limit.
    package var timeout: Duration? = Self.defaultTimeout

    /// Registry of the connections of ``answer(to:timeout:)``, through which other threads can close them.
    var connections: OpenConnections?

    /// Creates a client of the daemon at `path`, without connecting to it.
    package init(path: String) { self.path = path }

    /// Finds the daemon by requesting the status at each of ``ControlSocket/candidates(environment:)``.
    ///
    /// Blocks the thread, at most ``discoveryTimeout`` for each candidate.
    ///
    /// - Throws: ``ControlError/notRunning(_:)`` with all tried paths if no daemon listens, or the error of the last
    ///   daemon that did not respond properly.
    package static func find(
        environment: [String: String]
    ) throws(ControlError) -> ControlClient {
        let candidates = ControlSocket.candidates(environment: environment)
        var problem = ControlError.notRunning(candidates)
        for path in candidates {
            do throws(ControlError) {
                var client = ControlClient(path: path)
                let status = try client.answer(to: .status, timeout: discoveryTimeout)
                client.downloads = status.staged.map { DownloadDirectory(path: FilePath($0)) }
                return client
            } catch {
                if case .notRunning = error { continue }
                problem = error
            }
        }
        throw problem
    }

    /// Finds the daemon like ``find(environment:)``, without blocking a thread of the concurrency pool.
    package static func discover(
        environment: [String: String]
    ) async throws(ControlError) -> ControlClient {
        try await withBlockingThread { () throws(ControlError) in
            try find(environment: environment)
        }
    }

    /// Sends a request, and blocks the thread until the response has arrived.
    ///
    /// - Throws: ``ControlError/lost(_:after:)`` if the daemon is silent for `timeout`; `nil` means no limit.
    package func answer<Answer>(
        to request: ControlRequest<Answer>,
        timeout: Duration? = defaultTimeout
    ) throws(ControlError) -> Answer {
        try connected(timeout: timeout) { connection throws(ControlError) in
            try connection.answer(to: request)
        }
    }

    /// Requests an event stream, and blocks the thread until the daemon has accepted.
    package func openEvents(
        _ request: ControlRequest<SessionEvent>
    ) throws(ControlError) -> ControlEvents {
        // Once it is open, the owner of the stream closes it.
        try connected(timeout: timeout) { connection throws(ControlError) in
            try connection.events(request)
        }
    }

    /// Runs `body` with a connection that is in ``connections`` meanwhile, if there is such a registry.
    private func connected<Value>(
        timeout: Duration?,
        _ body: (ControlConnection) throws(ControlError) -> Value
    ) throws(ControlError) -> Value {
        let connection = try ControlConnection(path: path, timeout: timeout)
        guard let connections else { return try body(connection) }
        guard connections.insert(connection) else { throw .cancelled }
        defer { connections.remove(connection) }
        do throws(ControlError) {
            return try body(connection)
        } catch {
            throw connections.isClosed ? .cancelled : error
        }
    }

    /// Returns the daemon's status.
    package func status() async throws(ControlError) -> ServiceStatus { try await ask(.status) }

    /// Returns the daemon's metrics as text for Prometheus; with `all` set, root gets those of all users.
    package func metrics(all: Bool = false) async throws(ControlError) -> String {
        try await ask(.metrics(all: all))
    }

    /// Returns the sessions that the client may use; with `all` set, root gets those of all users.
    package func sessions(all: Bool = false) async throws(ControlError) -> [SessionStatus] {
        try await ask(.sessions(all: all)).sessions
    }

    /// Creates a session, or changes the configuration of an existing one.
    @discardableResult
    package func makeSession(
        _ identifier: String,
        configuration: SessionConfiguration
    ) async throws(ControlError) -> SessionStatus {
        try await ask(.makeSession(identifier, configuration: configuration))
    }

    /// Returns a session.
    package func session(_ identifier: String) async throws(ControlError) -> SessionStatus {
        try await ask(.session(identifier))
    }

    /// Cancels the tasks of a session and removes it with its events.
    package func removeSession(_ identifier: String) async throws(ControlError) {
        _ = try await ask(.removeSession(identifier))
    }

    /// Creates tasks, all or none; returns their identifiers in the same order, once they are on disk.
    package func createTasks(
        _ tasks: [TransferRequest],
        in session: String
    ) async throws(ControlError) -> [Int64] {
        let created = try await ask(.createTasks(NewTasks(tasks), in: session))
        guard created.ids.count == tasks.count else {
            throw .malformed(
                "expected \(tasks.count.quantity(of: "number")), found \(created.ids.count)"
            )
        }
        return created.ids
    }

    /// Returns the tasks of a session that are unfinished, or whose end is not acknowledged.
    package func tasks(in session: String) async throws(ControlError) -> [TransferTask] {
        try await ask(.tasks(in: session)).tasks
    }

    /// Returns the tasks of all sessions that the client may use; with `all` set, root gets those of all users.
    package func tasks(all: Bool = false) async throws(ControlError) -> [TransferTask] {
        try await ask(.tasks(all: all)).tasks
    }

    /// Returns a task.
    package func task(_ id: Int64) async throws(ControlError) -> TransferTask {
        try await ask(.task(id))
    }

    /// Changes a task, and returns its new state.
    @discardableResult
    package func change(
        _ id: Int64,
        by change: TransferChange
    ) async throws(ControlError) -> TransferTask {
        try await ask(.change(id, by: change))
    }

    /// Acknowledges events; returns once that is on disk.
    package func acknowledge(
        _ acknowledgement: Acknowledgement,
        in session: String
    ) async throws(ControlError) {
        _ = try await ask(.acknowledge(acknowledgement, in: session))
    }

    /// Extends the time limit of a launched handler.
    package func extend(_ session: String) async throws(ControlError) {
        _ = try await ask(.extend(session))
    }

    /// Attaches to a session, and returns the stream of its events after `sequence`.
    ///
    /// - Throws: ``ControlError/refused(_:)`` with `conflict` while another client is attached.
    package func events(
        of session: String,
        after sequence: Int64 = 0,
        launch: String? = nil
    ) async throws(ControlError) -> ControlEvents {
        try await stream(.events(of: session, after: sequence, launch: launch))
    }

    /// Returns a stream of the events of all sessions that the client may use; with `all` set, root gets those of all
    /// users.
    package func watch(all: Bool = false) async throws(ControlError) -> ControlEvents {
        try await stream(.watch(all: all))
    }

    private func ask<Answer>(
        _ request: ControlRequest<Answer>
    ) async throws(ControlError) -> Answer {
        try await connected { connection throws(ControlError) in
            try connection.answer(to: request)
        }
    }

    private func stream(
        _ request: ControlRequest<SessionEvent>
    ) async throws(ControlError) -> ControlEvents {
        try await connected { connection throws(ControlError) in try connection.events(request) }
    }

    /// Runs `body` with a connection on a blocking thread; cancelling the task closes the connection.
    private func connected<Value: Sendable>(
        _ body: @escaping @Sendable (ControlConnection) throws(ControlError) -> Value
    ) async throws(ControlError) -> Value {
        let held = OpenConnections()
        var other = self
        other.connections = held
        let client = other
        let result = await withTaskCancellationHandler {
            await withBlockingThread {
                Result { () throws(ControlError) in
                    try client.connected(timeout: client.timeout, body)
                }
            }
        } onCancel: {
            held.close()
        }
        if case .failure = result, Task.isCancelled { throw .cancelled }
        return try result.get()
    }
}

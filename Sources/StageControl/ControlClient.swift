import StageModel
import StageSystem
import SystemPackage

/// A client of the daemon: asks over its socket, a connection for each question.
///
/// The calls that have a name wait without blocking a thread of Swift's tasks, and close their
/// connection when the task is cancelled; ``answer(to:patience:)`` blocks.
public struct ControlClient: Sendable {
    /// The time that a daemon has for its first answer: a process that has other ways does not
    /// wait for one that hangs.
    public static let firstPatience = Duration.seconds(3)
    /// The time that a daemon has for each further answer.
    public static let usualPatience = Duration.seconds(30)

    /// The path of the daemon's socket.
    public let path: String
    /// Directory of this user's finished downloads; `nil` if the daemon was not asked.
    public private(set) var staged: StagedDirectory?
    /// The longest silence of the daemon that a request waits through; `nil` for no limit.
    public var patience: Duration? = Self.usualPatience

    /// The connections of ``answer(to:patience:)``, where others may close them.
    var connections: OpenConnections?

    /// Creates a client of the daemon at `path`, whether it is there or not.
    public init(path: String) { self.path = path }

    /// Finds the daemon by asking each of ``ControlSocket/candidates(environment:)`` what it says of itself.
    ///
    /// Blocks the thread, ``firstPatience`` for each at most.
    ///
    /// - Throws: ``ControlError/notRunning(_:)`` with all paths that were tried if no daemon listens, or
    ///   why the last one that there is cannot be spoken to.
    public static func find(
        environment: [String: String]
    ) throws(ControlError) -> ControlClient {
        let candidates = ControlSocket.candidates(environment: environment)
        var problem = ControlError.notRunning(candidates)
        for path in candidates {
            do throws(ControlError) {
                var client = ControlClient(path: path)
                let status = try client.answer(to: .status, patience: firstPatience)
                client.staged = status.staged.map { StagedDirectory(path: FilePath($0)) }
                return client
            } catch {
                if case .notRunning = error { continue }
                problem = error
            }
        }
        throw problem
    }

    /// Finds the daemon as ``find(environment:)`` does, without blocking a thread of Swift's tasks.
    public static func discover(
        environment: [String: String]
    ) async throws(ControlError) -> ControlClient {
        try await withBlockingThread { () throws(ControlError) in
            try find(environment: environment)
        }
    }

    /// Asks, and blocks the thread until the answer is there.
    ///
    /// - Throws: ``ControlError/lost(_:after:)`` if it is not there after `patience`, where one is named.
    public func answer<Answer>(
        to request: ControlRequest<Answer>,
        patience: Duration? = usualPatience
    ) throws(ControlError) -> Answer {
        let connection = try ControlConnection(path: path, patience: patience)
        guard let connections else { return try connection.answer(to: request) }
        guard connections.insert(connection) else { throw .cancelled }
        defer { connections.remove(connection) }
        do throws(ControlError) {
            return try connection.answer(to: request)
        } catch {
            throw connections.isClosed ? .cancelled : error
        }
    }

    /// Asks for events, and blocks the thread until the daemon has agreed.
    public func openEvents(
        _ request: ControlRequest<SessionEvent>
    ) throws(ControlError) -> ControlEvents {
        let connection = try ControlConnection(path: path, patience: patience)
        guard let connections else { return try connection.events(request) }
        guard connections.insert(connection) else { throw .cancelled }
        // From then on the stream is closed by its owner.
        defer { connections.remove(connection) }
        do throws(ControlError) {
            return try connection.events(request)
        } catch {
            throw connections.isClosed ? .cancelled : error
        }
    }

    /// Returns what the daemon says of itself.
    public func status() async throws(ControlError) -> ServiceStatus { try await ask(.status) }

    /// Returns the sessions, of all users if the client may see them.
    public func sessions(all: Bool = false) async throws(ControlError) -> [SessionStatus] {
        try await ask(.sessions(all: all)).sessions
    }

    /// Makes a session, or changes the one that there is.
    @discardableResult
    public func makeSession(
        _ identifier: String,
        configuration: SessionConfiguration
    ) async throws(ControlError) -> SessionStatus {
        try await ask(.makeSession(identifier, configuration))
    }

    /// Returns a session.
    public func session(_ identifier: String) async throws(ControlError) -> SessionStatus {
        try await ask(.session(identifier))
    }

    /// Cancels the tasks of a session and forgets it, events included.
    public func removeSession(_ identifier: String) async throws(ControlError) {
        _ = try await ask(.removeSession(identifier))
    }

    /// Creates tasks, all or none, and returns their numbers in the same order once they are on disk.
    ///
    /// `launch` is the token of the launch that this process was started by, if it was.
    public func createTasks(
        _ tasks: [TransferRequest],
        in session: String,
        launch: String? = nil
    ) async throws(ControlError) -> [Int64] {
        let created = try await ask(.createTasks(NewTasks(tasks, launch: launch), in: session))
        guard created.ids.count == tasks.count else {
            throw .malformed(
                "expected \(tasks.count.quantity(of: "number")), found \(created.ids.count)"
            )
        }
        return created.ids
    }

    /// Returns the tasks of a session that have not ended, or whose end was not acknowledged.
    public func tasks(in session: String) async throws(ControlError) -> [TransferTask] {
        try await ask(.tasks(in: session)).tasks
    }

    /// Returns the tasks of all sessions, of all users if the client may see them.
    public func tasks(all: Bool = false) async throws(ControlError) -> [TransferTask] {
        try await ask(.tasks(all: all)).tasks
    }

    /// Returns a task.
    public func task(_ id: Int64) async throws(ControlError) -> TransferTask {
        try await ask(.task(id))
    }

    /// Changes a task, and returns it as it then is.
    @discardableResult
    public func change(
        _ id: Int64,
        _ change: TransferChange
    ) async throws(ControlError) -> TransferTask {
        try await ask(.change(id, change))
    }

    /// Says what was taken in; it is on disk afterwards.
    public func acknowledge(
        _ acknowledgement: Acknowledgement,
        in session: String
    ) async throws(ControlError) {
        _ = try await ask(.acknowledge(acknowledgement, in: session))
    }

    /// Asks for more time for a launched handler.
    public func extend(_ session: String) async throws(ControlError) {
        _ = try await ask(.extend(session))
    }

    /// Attaches to a session, and returns its events after `sequence` as they come.
    ///
    /// - Throws: ``ControlError/refused(_:)`` with `conflict` while another client is attached.
    public func events(
        of session: String,
        after sequence: Int64 = 0,
        launch: String? = nil
    ) async throws(ControlError) -> ControlEvents {
        try await stream(.events(of: session, after: sequence, launch: launch))
    }

    /// Returns what happens in all sessions, of all users if the client may see them, as it happens.
    public func watch(all: Bool = false) async throws(ControlError) -> ControlEvents {
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

    /// Runs `body` with a connection on a thread that may block; cancelling the task closes it.
    private func connected<Value: Sendable>(
        _ body: @escaping @Sendable (ControlConnection) throws(ControlError) -> Value
    ) async throws(ControlError) -> Value {
        let (path, patience) = (path, patience)
        let held = OpenConnections()
        let result = await withTaskCancellationHandler {
            await withBlockingThread {
                Result { () throws(ControlError) in
                    let connection = try ControlConnection(path: path, patience: patience)
                    guard held.insert(connection) else { throw .cancelled }
                    return try body(connection)
                }
            }
        } onCancel: {
            held.close()
        }
        if case .failure = result, Task.isCancelled { throw .cancelled }
        return try result.get()
    }
}

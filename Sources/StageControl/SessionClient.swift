import StageModel
import StageSystem
import Synchronization

/// Requests of a process about one session of the daemon.
///
/// Finds the daemon with the first request and remembers it until a request fails. The session is made
/// at each daemon that is found, before the first request that needs it. Requests of several threads run side by
/// side. Calls block the thread, but for ``withoutBlocking(_:)``.
public final class SessionClient: Sendable {
    /// Makes the session at a daemon, or changes the one that there is, and returns it.
    public typealias Setup =
        @Sendable (ControlClient) throws(ControlError) -> SessionStatus

    /// A daemon that was found.
    private struct Found {
        var client: ControlClient
        var number: Int
        var hasSession = false
        /// Whether it was found for the request at hand.
        var isNew = true
        /// The time of its last answer.
        var lastAnswer = ContinuousClock.now
    }

    private struct State {
        var first: SessionStatus?
        var last: SessionStatus?
        var staged: StagedDirectory?
        var whenFound: (@Sendable () -> Void)?
    }

    /// The session's identifier.
    public let identifier: String
    private let environment: [String: String]
    private let patience: Duration
    private let setup: Setup
    private let connections = OpenConnections()
    // Held while the daemon is looked for: other requests need it as well.
    private let found = Mutex<(value: Found?, number: Int)>((nil, 0))
    private let state = Mutex(State())

    /// Creates the client of a session; it asks nothing yet.
    ///
    /// - Parameters:
    ///   - identifier: The session's identifier.
    ///   - environment: The variables that ``ControlSocket/candidates(environment:)`` reads.
    ///   - patience: The longest silence of the daemon that a request waits through.
    ///   - setup: Makes the session.
    public init(
        _ identifier: String,
        environment: [String: String],
        patience: Duration = ControlClient.usualPatience,
        setup: @escaping Setup
    ) {
        self.identifier = identifier
        self.environment = environment
        self.patience = patience
        self.setup = setup
    }

    /// Creates the client of a session that has a fixed configuration.
    ///
    /// - Parameters:
    ///   - identifier: The session's identifier.
    ///   - configuration: The configuration that the session is made with.
    ///   - environment: The variables that ``ControlSocket/candidates(environment:)`` reads.
    ///   - patience: The longest silence of the daemon that a request waits through.
    public convenience init(
        _ identifier: String,
        configuration: SessionConfiguration,
        environment: [String: String],
        patience: Duration = ControlClient.usualPatience
    ) {
        self.init(identifier, environment: environment, patience: patience) {
            client throws(ControlError) in
            try client.answer(
                to: .makeSession(identifier, configuration),
                patience: client.patience
            )
        }
    }

    /// The session as the first daemon had it when this process first made it; `nil` before that.
    public var firstStatus: SessionStatus? { state.withLock { $0.first } }

    /// The session as the daemon had it when this process last made it; `nil` before that.
    public var lastStatus: SessionStatus? { state.withLock { $0.last } }

    /// Whether the file of a finished download is where the daemon that was found last leaves this user's.
    public func accepts(_ location: String) -> Bool {
        state.withLock { $0.staged }?.accepts(location) ?? false
    }

    /// Finds the daemon anew, makes the session, and returns it.
    public func connect() throws(ControlError) -> SessionStatus {
        try found.withLock { found throws(ControlError) in
            found.value = nil
            try find(&found)
            return try makeSession(&found)
        }
    }

    /// Sends a request, and returns the answer.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - patience: The longest silence of the daemon, if it is another than usual; zero for no limit.
    ///   - needsSession: Whether the session is made before.
    /// - Returns: The daemon's answer.
    /// - Throws: ``ControlError``; after ``ControlError/lost(_:after:)`` the request may have arrived.
    public func answer<Answer>(
        to request: ControlRequest<Answer>,
        patience: Duration? = nil,
        needsSession: Bool = true
    ) throws(ControlError) -> Answer {
        let daemon = try current(needsSession: needsSession)
        do throws(ControlError) {
            return try send(request, to: daemon, patience: patience)
        } catch .notRunning where !daemon.isNew {
            // Nothing was sent, and there may be another daemon by now.
            return try send(
                request,
                to: try current(needsSession: needsSession),
                patience: patience
            )
        }
    }

    private func send<Answer>(
        _ request: ControlRequest<Answer>,
        to daemon: Found,
        patience: Duration?
    ) throws(ControlError) -> Answer {
        let patience = patience ?? self.patience
        do throws(ControlError) {
            let answer = try daemon.client.answer(
                to: request,
                patience: patience == .zero ? nil : patience
            )
            found.withLock { found in
                if found.value?.number == daemon.number { found.value?.lastAnswer = .now }
            }
            return answer
        } catch {
            forget(daemon, after: error)
            throw error
        }
    }

    /// Creates tasks, all or none.
    ///
    /// Where the connection broke before the answer, the request is sent once more: the tokens keep it from
    /// making tasks twice.
    ///
    /// - Parameters:
    ///   - tasks: The tasks, ``ControlFormat/taskLimit`` at most.
    ///   - launch: The token of the launch that this process was started by, if it was.
    ///   - patience: The longest silence of the daemon, if it is another than usual; zero for no limit.
    /// - Returns: The numbers of the tasks, in the same order.
    /// - Throws: ``ControlError``; after ``ControlError/lost(_:after:)`` the tasks may be there.
    public func createTasks(
        _ tasks: [TransferRequest],
        launch: String? = nil,
        patience: Duration? = nil
    ) throws(ControlError) -> [Int64] {
        let request = ControlRequest.createTasks(NewTasks(tasks, launch: launch), in: identifier)
        let created = try repeating { () throws(ControlError) in
            try answer(to: request, patience: patience)
        }
        guard created.ids.count == tasks.count else {
            throw .malformed(
                "expected \(tasks.count.quantity(of: "number")), found \(created.ids.count)"
            )
        }
        return created.ids
    }

    /// Changes a task, and returns it as it then is.
    ///
    /// If the connection broke before the answer, the request is sent once more, but for the end of a staging that
    /// the daemon has taken in. If the first one has ended the task, that is no error.
    public func change(
        _ id: Int64,
        _ change: TransferChange
    ) throws(ControlError) -> TransferTask {
        do throws(ControlError) {
            return try answer(to: .change(id, change), needsSession: false)
        } catch .lost(let path, after: nil) {
            do throws(ControlError) {
                if let end = change.stagingEnd {
                    // A second end would count as a second failure.
                    let task = try answer(to: .task(id), needsSession: false)
                    if change.hasEnded(task) || end.isHolding(task) { return task }
                }
                return try answer(to: .change(id, change), needsSession: false)
            } catch .refused(let refusal) where refusal.code == .conflict {
                let task = try answer(to: .task(id), needsSession: false)
                guard change.hasEnded(task) else { throw .refused(refusal) }
                return task
            } catch .refused(let refusal) where refusal.code != .unavailable {
                throw .refused(refusal)
            } catch {
                throw .lost(path)
            }
        }
    }

    /// Changes tasks of the session, ``ControlFormat/taskLimit`` at most and each once, and returns the refusals by task.
    ///
    /// - Throws: ``ControlError``; after ``ControlError/lost(_:after:)`` the changes may have been made.
    public func changeTasks(
        _ changes: [TaskChange]
    ) throws(ControlError) -> [Int64: ControlRefusal] {
        let request = ControlRequest.changeTasks(TaskChanges(changes), in: identifier)
        let answer = try answer(to: request, needsSession: false)
        return Dictionary(answer.refusals.map { ($0.task, $0.refusal) }) { first, _ in first }
    }

    /// Runs `body`, which sends requests, on a thread that may block; cancelling the task ends this client.
    public func withoutBlocking<Value: Sendable>(
        _ body: @escaping @Sendable (SessionClient) throws(ControlError) -> Value
    ) async throws(ControlError) -> Value {
        let result = await withTaskCancellationHandler {
            await withBlockingThread { Result { () throws(ControlError) in try body(self) } }
        } onCancel: {
            self.close()
        }
        return try result.get()
    }

    /// Ends the requests that wait for the daemon; they and all later ones fail with ``ControlError/cancelled``.
    public func close() { connections.close() }

    /// Opens the stream of the session's events after `sequence`, at the daemon of the last request.
    func openEvents(
        after sequence: Int64,
        launch: String?
    ) throws(ControlError) -> ControlEvents {
        try current(needsSession: true).client
            .openEvents(.events(of: identifier, after: sequence, launch: launch))
    }

    /// Has `body` called whenever a daemon was found.
    func whenFound(_ body: @escaping @Sendable () -> Void) {
        state.withLock { $0.whenFound = body }
    }

    private func current(needsSession: Bool) throws(ControlError) -> Found {
        try found.withLock { found throws(ControlError) in
            forgetIfSilent(&found)
            if found.value == nil { try find(&found) }
            if needsSession, found.value?.hasSession != true { _ = try makeSession(&found) }
            guard let daemon = found.value else { throw .notRunning([]) }
            found.value?.isNew = false
            return daemon
        }
    }

    /// Forgets a daemon that has not answered lately and does not at once: a process that stands still would have
    /// each request wait for its patience.
    private func forgetIfSilent(_ found: inout (value: Found?, number: Int)) {
        guard let daemon = found.value,
            daemon.lastAnswer + ControlClient.firstPatience < .now
        else { return }
        do throws(ControlError) {
            _ = try daemon.client.answer(to: .status, patience: ControlClient.firstPatience)
            found.value?.lastAnswer = .now
        } catch {
            found.value = nil
        }
    }

    private func find(_ found: inout (value: Found?, number: Int)) throws(ControlError) {
        guard !connections.isClosed else { throw .cancelled }
        var client = try ControlClient.find(environment: environment)
        client.connections = connections
        client.patience = patience
        found.number += 1
        found.value = Found(client: client, number: found.number)
        let whenFound = state.withLock { state in
            state.staged = client.staged
            return state.whenFound
        }
        whenFound?()
    }

    private func makeSession(
        _ found: inout (value: Found?, number: Int)
    ) throws(ControlError) -> SessionStatus {
        guard let client = found.value?.client else { throw .notRunning([]) }
        do throws(ControlError) {
            let status = try setup(client)
            found.value?.hasSession = true
            state.withLock { state in
                state.first = state.first ?? status
                state.last = status
            }
            return status
        } catch {
            found.value = nil
            throw error
        }
    }

    /// Forgets the daemon after an error, unless that is a refusal.
    private func forget(_ daemon: Found, after error: ControlError) {
        // A daemon that was started anew, perhaps without its records, knows no session.
        if case .refused(let refusal) = error, refusal.code != .notFound { return }
        found.withLock { found in
            if found.value?.number == daemon.number { found.value = nil }
        }
    }

    /// Runs `body` once more if the connection broke; if that is of no avail, what `body` asked for may have
    /// been done all the same.
    private func repeating<Value>(
        _ body: () throws(ControlError) -> Value
    ) throws(ControlError) -> Value {
        do throws(ControlError) {
            return try body()
        } catch .lost(let path, after: nil) {
            do throws(ControlError) {
                return try body()
            } catch .refused(let refusal) where refusal.code != .unavailable {
                throw .refused(refusal)
            } catch {
                throw .lost(path)
            }
        }
    }
}

extension StagingEnd {
    /// Whether the task waits because the daemon has taken this end in.
    fileprivate func isHolding(_ task: TransferTask) -> Bool {
        guard let hold, let failure else { return false }
        return task.lastProblem == failure.reason && task.holds.contains { $0.reason == hold }
    }
}

extension TransferChange {
    /// Whether the task has ended as this change asks.
    fileprivate func hasEnded(_ task: TransferTask) -> Bool {
        switch task.state {
        case .cancelled: state == .cancelled
        case .completed, .failed: stagingEnd != nil
        default: false
        }
    }
}

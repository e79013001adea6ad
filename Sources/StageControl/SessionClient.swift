import StageModel
import StageSystem
import Synchronization

/// Sends a process's requests about one session of the daemon.
///
/// Finds the daemon at the first request, and again after a request has failed. Creates the session at each daemon
/// found, before the first request that needs it. Threads may send requests concurrently. Methods block the thread,
/// except ``withoutBlocking(_:)``.
package final class SessionClient: Sendable {
    /// Closure that creates or updates the session at a daemon.
    package typealias Setup =
        @Sendable (ControlClient) throws(ControlError) -> SessionStatus

    /// Daemon that was found.
    private struct FoundDaemon {
        var client: ControlClient
        var number: Int
        var hasSession = false
        /// Set until the first request after finding the daemon.
        var isNew = true
        /// Time of the last response.
        var lastAnswer = SuspendingClock.now
    }

    private struct State {
        var first: SessionStatus?
        var last: SessionStatus?
        var downloads: DownloadDirectory?
        var whenFound: (@Sendable () -> Void)?
    }

    /// Identifier of the session.
    package let identifier: String
    private let environment: [String: String]
    private let timeout: Duration
    private let setup: Setup
    private let connections = OpenConnections()
    // Locked during the search for the daemon, since other requests need its result as well.
    private let found = Mutex<(value: FoundDaemon?, number: Int)>((nil, 0))
    private let state = Mutex(State())

    /// Creates the client of a session, without connecting.
    ///
    /// - Parameters:
    ///   - identifier: The session's identifier.
    ///   - environment: The variables that ``ControlSocket/candidates(environment:)`` reads.
    ///   - timeout: The maximum time without data from the daemon during a request.
    ///   - setup: Creates the session.
    package init(
        _ identifier: String,
        environment: [String: String],
        timeout: Duration = ControlClient.defaultTimeout,
        setup: @escaping Setup
    ) {
        self.identifier = identifier
        self.environment = environment
        self.timeout = timeout
        self.setup = setup
    }

    /// Creates the client of a session with a fixed configuration, without connecting.
    ///
    /// - Parameters:
    ///   - identifier: The session's identifier.
    ///   - configuration: The session's configuration.
    ///   - environment: The variables that ``ControlSocket/candidates(environment:)`` reads.
    ///   - timeout: The maximum time without data from the daemon during a request.
    package convenience init(
        _ identifier: String,
        configuration: SessionConfiguration,
        environment: [String: String],
        timeout: Duration = ControlClient.defaultTimeout
    ) {
        self.init(identifier, environment: environment, timeout: timeout) {
            client throws(ControlError) in
            try client.answer(
                to: .makeSession(identifier, configuration: configuration),
                timeout: client.timeout
            )
        }
    }

    /// Status of the session when this process first created it; `nil` before that.
    package var firstStatus: SessionStatus? { state.withLock { $0.first } }

    /// Status of the session when this process last created it; `nil` before that.
    package var lastStatus: SessionStatus? { state.withLock { $0.last } }

    /// Returns whether the file of a finished download is in the directory that the daemon last found keeps for this
    /// user.
    package func accepts(_ location: String) -> Bool {
        state.withLock { $0.downloads }?.accepts(location) ?? false
    }

    /// Finds the daemon again, creates the session, and returns its status.
    package func connect() throws(ControlError) -> SessionStatus {
        try found.withLock { found throws(ControlError) in
            found.value = nil
            try find(&found)
            return try makeSession(&found)
        }
    }

    /// Sends a request, and returns the response.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - timeout: The maximum time without data from the daemon; `nil` for the client's, zero for no limit.
    ///   - needsSession: Whether to create the session first.
    /// - Returns: The daemon's response.
    /// - Throws: ``ControlError``; after ``ControlError/lost(_:after:)`` the request may have arrived.
    package func answer<Answer>(
        to request: ControlRequest<Answer>,
        timeout: Duration? = nil,
        needsSession: Bool = true
    ) throws(ControlError) -> Answer {
        let daemon = try current(needsSession: needsSession)
        do throws(ControlError) {
            return try send(request, to: daemon, timeout: timeout)
        } catch .notRunning where !daemon.isNew {
            // The request was not sent, and another daemon may be running by now.
            return try send(
                request,
                to: try current(needsSession: needsSession),
                timeout: timeout
            )
        }
    }

    private func send<Answer>(
        _ request: ControlRequest<Answer>,
        to daemon: FoundDaemon,
        timeout: Duration?
    ) throws(ControlError) -> Answer {
        let timeout = timeout ?? self.timeout
        do throws(ControlError) {
            let answer = try daemon.client.answer(
                to: request,
                timeout: timeout == .zero ? nil : timeout
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
    /// If the connection breaks before the response, sends the request once more; the tokens prevent duplicate tasks.
    ///
    /// - Parameters:
    ///   - tasks: The tasks, at most ``ControlFormat/taskLimit``.
    ///   - launch: The token of the launch that started this process, if one did.
    ///   - timeout: The maximum time without data from the daemon; `nil` for the client's, zero for no limit.
    /// - Returns: The identifiers of the tasks, in the same order.
    /// - Throws: ``ControlError``; after ``ControlError/lost(_:after:)`` the tasks may exist.
    package func createTasks(
        _ tasks: [TransferRequest],
        launch: String? = nil,
        timeout: Duration? = nil
    ) throws(ControlError) -> [Int64] {
        let request = ControlRequest.createTasks(NewTasks(tasks, launch: launch), in: identifier)
        let created = try repeating { () throws(ControlError) in
            try answer(to: request, timeout: timeout)
        }
        guard created.ids.count == tasks.count else {
            throw .malformed(
                "expected \(tasks.count.quantity(of: "number")), found \(created.ids.count)"
            )
        }
        return created.ids
    }

    /// Changes a task, and returns its new state.
    ///
    /// If the connection breaks before the response, sends the request once more, unless it ended a staging and the
    /// daemon has processed it. It is no error if the first request has ended the task.
    package func change(
        _ id: Int64,
        by change: TransferChange
    ) throws(ControlError) -> TransferTask {
        do throws(ControlError) {
            return try answer(to: .change(id, by: change), needsSession: false)
        } catch .lost(let path, after: nil) {
            do throws(ControlError) {
                if let end = change.stagingEnd {
                    // A repeated end would count as a second failure.
                    let task = try answer(to: .task(id), needsSession: false)
                    if change.hasEnded(task) || end.isPending(task) { return task }
                }
                return try answer(to: .change(id, by: change), needsSession: false)
            } catch .refused(let refusal) where refusal.code == .conflict {
                let task = try answer(to: .task(id), needsSession: false)
                guard change.hasEnded(task) else { throw .refused(refusal) }
                return task
            } catch .refused(let refusal) where !refusal.isTemporary {
                throw .refused(refusal)
            } catch {
                throw .lost(path)
            }
        }
    }

    /// Changes tasks of the session; returns the refusals by task.
    ///
    /// The changes are at most ``ControlFormat/taskLimit``, one for each task.
    ///
    /// - Throws: ``ControlError``; after ``ControlError/lost(_:after:)`` the changes may have been made.
    package func changeTasks(
        _ changes: [TaskChange]
    ) throws(ControlError) -> [Int64: ControlRefusal] {
        let request = ControlRequest.changeTasks(TaskChanges(changes), in: identifier)
        let answer = try answer(to: request, needsSession: false)
        return Dictionary(answer.refusals.map { ($0.task, $0.refusal) }) { first, _ in first }
    }

    /// Runs `body`, which sends requests, on a blocking thread; cancelling the task closes this client.
    package func withoutBlocking<Value: Sendable>(
        _ body: @escaping @Sendable (SessionClient) throws(ControlError) -> Value
    ) async throws(ControlError) -> Value {
        let result = await withTaskCancellationHandler {
            await withBlockingThread { Result { () throws(ControlError) in try body(self) } }
        } onCancel: {
            self.close()
        }
        return try result.get()
    }

    /// Ends all waiting requests; they and later ones fail with ``ControlError/cancelled``.
    package func close() { connections.close() }

    /// Opens the stream of the session's events after `sequence`, at the current daemon.
    func openEvents(
        after sequence: Int64,
        launch: String?
    ) throws(ControlError) -> ControlEvents {
        try current(needsSession: true).client
            .openEvents(.events(of: identifier, after: sequence, launch: launch))
    }

    /// Sets a closure to call whenever a daemon was found.
    func whenFound(_ body: @escaping @Sendable () -> Void) {
        state.withLock { $0.whenFound = body }
    }

    private func current(needsSession: Bool) throws(ControlError) -> FoundDaemon {
        try found.withLock { found throws(ControlError) in
            forgetIfSilent(&found)
            if found.value == nil { try find(&found) }
            if needsSession, found.value?.hasSession != true { _ = try makeSession(&found) }
            guard let daemon = found.value else { throw .notRunning([]) }
            found.value?.isNew = false
            return daemon
        }
    }

    /// Forgets a daemon that has not responded lately and does not respond to a status request.
    ///
    /// Otherwise each request to a daemon that hangs would wait for its whole timeout.
    private func forgetIfSilent(_ found: inout (value: FoundDaemon?, number: Int)) {
        guard let daemon = found.value,
            daemon.lastAnswer + ControlClient.discoveryTimeout < .now
        else { return }
        do throws(ControlError) {
            _ = try daemon.client.answer(to: .status, timeout: ControlClient.discoveryTimeout)
            found.value?.lastAnswer = .now
        } catch {
            found.value = nil
        }
    }

    private func find(_ found: inout (value: FoundDaemon?, number: Int)) throws(ControlError) {
        guard !connections.isClosed else { throw .cancelled }
        var client = try ControlClient.find(environment: environment)
        client.connections = connections
        client.timeout = timeout
        found.number += 1
        found.value = FoundDaemon(client: client, number: found.number)
        let whenFound = state.withLock { state in
            state.downloads = client.downloads
            return state.whenFound
        }
        whenFound?()
    }

    private func makeSession(
        _ found: inout (value: FoundDaemon?, number: Int)
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

    /// Forgets the daemon after an error, unless it refused the request.
    private func forget(_ daemon: FoundDaemon, after error: ControlError) {
        // A restarted daemon that has lost its journal does not know the session.
        if case .refused(let refusal) = error, refusal.code != .notFound { return }
        found.withLock { found in
            if found.value?.number == daemon.number { found.value = nil }
        }
    }

    /// Runs `body`, and once more if the connection broke.
    ///
    /// If that fails as well, or is refused for a reason that may pass, the first request may have taken effect
    /// (``ControlError/lost(_:after:)``).
    private func repeating<Value>(
        _ body: () throws(ControlError) -> Value
    ) throws(ControlError) -> Value {
        do throws(ControlError) {
            return try body()
        } catch .lost(let path, after: nil) {
            do throws(ControlError) {
                return try body()
            } catch .refused(let refusal) where !refusal.isTemporary {
                throw .refused(refusal)
            } catch {
                throw .lost(path)
            }
        }
    }
}

extension StagingEnd {
    /// Returns whether the task already waits for the reason, and has the failure, of this end.
    fileprivate func isPending(_ task: TransferTask) -> Bool {
        guard let pendingReason, let failure else { return false }
        return task.lastProblem == failure.reason
            && task.pendingReasons.contains { $0.kind == pendingReason }
    }
}

extension TransferChange {
    /// Returns whether the task has the final state that this change requests.
    fileprivate func hasEnded(_ task: TransferTask) -> Bool {
        switch task.state {
        case .cancelled: state == .cancelled
        case .completed, .failed: stagingEnd != nil
        default: false
        }
    }
}

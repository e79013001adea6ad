import Foundation
import StageControl
import Synchronization

extension URLSession {
    /// Starts receiving events, or reports why there are none.
    func begin() {
        // There is no daemon to wait for: calls that ask for the tasks return those of this process.
        if isForeground { return link.end {} }
        if !link.identifier.isEmpty && SessionRegistry.register(self) {
            do throws(ControlError) {
                try link.start(self)
                return
            } catch {
                // The session can be created again as soon as the process can create threads.
                state.withLock { [error] in $0.failure = URLError(of: error) }
                SessionRegistry.remove(self)
            }
        }
        state.withLock { $0.isInvalidating = true }
        // Calls that ask for the tasks of the session return at once, without any.
        link.end {}
        let error = refusal
        delegateCalls.add { [self] in becomeInvalid(error) }
    }

    /// Error of new tasks; `nil` if the session accepts tasks.
    var refusal: URLError? {
        if let failure = state.withLock({ $0.failure }) { return failure }
        if isForeground { return state.withLock { $0.isInvalidating } ? invalidation : nil }
        if link.identifier.isEmpty {
            let reason = "a background session needs an identifier that is not empty"
            return URLError(.unsupportedURL, reason: reason)
        }
        guard SessionRegistry.session(link.identifier) === self else {
            let name = link.identifier
            return URLError(
                .backgroundSessionInUseByAnotherProcess,
                reason: "this process already has a session '\(name)'"
            )
        }
        return state.withLock { $0.isInvalidating } ? invalidation : nil
    }

    /// Error of tasks that are created after the session was invalidated.
    var invalidation: URLError {
        guard !isForeground else {
            return URLError(.cancelled, reason: "the session was invalidated and accepts no tasks")
        }
        let reason = "the session '\(link.identifier)' was invalidated and accepts no tasks"
        return URLError(.backgroundSessionWasDisconnected, reason: reason)
    }

    /// Creates tasks, and sends them to the daemon.
    func make<Task: URLSessionTask>(
        _ specifications: [TaskSpecification],
        build: (ClientTaskState) -> Task
    ) -> [Task] {
        let refusal = refusal
        let tasks = specifications.map { specification in
            let identity = TaskIdentity(at: .now)
            var request = specification.request
            request.token = identity.newToken
            var record = ClientTaskState(request, created: .now)
            record.identifier = identity.number
            record.refusal =
                specification.problem ?? refusal ?? (isForeground ? .backgroundTransfer : nil)
            record.original = specification.original
            return build(record)
        }
        add(tasks)
        sendChanges(of: tasks)
        return tasks
    }

    /// Adds new tasks, and reports them on the caller's thread, as Apple's class does.
    ///
    /// A task fails if the session was invalidated since its creation began. A session that has ended does not retain it.
    func add(_ tasks: [URLSessionTask]) {
        state.withLock { state in
            for task in tasks {
                if state.isInvalidating {
                    task.record.withLock { $0.refusal = $0.refusal ?? invalidation }
                    if state.isOver { continue }
                    state.lateTasks.insert(ObjectIdentifier(task))
                }
                state.tasks[ObjectIdentifier(task)] = task
                state.byToken[task.token] = task
            }
        }
        for task in tasks {
            (task.listener as? any URLSessionTaskDelegate)?.urlSession(self, didCreateTask: task)
        }
    }

    /// Sends a task's changes to the daemon, or performs them here for a session in this process.
    func sendChanges(of task: URLSessionTask) { sendChanges(of: [task]) }

    /// Sends the changes of tasks to the daemon; returns at once.
    func sendChanges(of tasks: [URLSessionTask]) {
        guard !isForeground else {
            for task in tasks { applyState(of: task) }
            return
        }
        link.enqueue(
            tasks.filter { !endIfUnsendable($0) && $0.record.withLock(\.hasUnsentChanges) }
        )
    }

    /// Ends a task that was refused, or was cancelled before the daemon had it; returns whether it did.
    @discardableResult
    func endIfUnsendable(_ task: URLSessionTask) -> Bool {
        guard let error = task.record.withLock(\.reasonToEnd) else { return false }
        end(task, with: error)
        return true
    }

    /// Handles the daemon's refusal of a task or of a change of it.
    func handleRefusal(of task: URLSessionTask, error: ControlError) {
        task.record.withLock { record in
            record.refusal = URLError(of: error, resuming: record.request.resumeToken != nil)
        }
        endIfUnsendable(task)
    }

    /// Numbers of the tasks that the daemon is known to have.
    var numbers: Set<Int64> { state.withLock { Set($0.byNumber.keys) } }

    /// Synchronizes the tasks with the daemon's; `earlier` are those that it was known to have before the list was
    /// requested.
    func reconcile(with list: [TransferTask], earlier: Set<Int64>) {
        for task in list { adopt(task) }
        let known = Dictionary(list.map { ($0.id, $0.request.token) }) { first, _ in first }
        state.withLock { $0.ended.formIntersection(known.keys) }
        let attachments = state.withLock { $0.attachments }
        for task in unfinished {
            let (isGone, found) = task.record.withLock { record -> (Bool, Int?) in
                guard let number = record.number, earlier.contains(number), !record.hasEnded
                else { return (false, nil) }
                // A daemon that has lost its records gives the number to another task.
                return (known[number] != record.request.token, record.daemon?.discoveryAttachment)
            }
            guard isGone else { continue }
            if found == attachments {
                // The process that was attached before this session has handled its end.
                drop(task)
                continue
            }
            let reason =
                "the daemon does not know the task: another process may have received its end"
            end(task, with: URLError(.backgroundSessionWasDisconnected, reason: reason))
        }
    }

    /// Removes a task that another process has handled the end of, without notifying the delegate.
    private func drop(_ task: URLSessionTask) {
        let receivers = task.record.withLock { record in
            record.end()
            record.isComplete = true
            defer { record.resumeDataReceivers = [] }
            return record.resumeDataReceivers
        }
        state.withLock { state in
            state.tasks[ObjectIdentifier(task)] = nil
            state.byToken[task.token] = nil
            if let number = task.record.withLock({ $0.number }) { state.byNumber[number] = nil }
        }
        link.remove(task)
        delegateCalls.add { [self] in
            for receiver in receivers { receiver(nil) }
            endIfDone()
        }
    }

    /// Adds one of the daemon's tasks: returns the known object, even if the response to the request that created it
    /// has not arrived, or a new one; `nil` for a task whose end was delivered.
    @discardableResult
    func adopt(_ task: TransferTask) -> URLSessionTask? {
        var record = ClientTaskState(task)
        let (adopted, isKnown) = state.withLock { state -> (URLSessionTask?, Bool) in
            if state.ended.contains(task.id) { return (nil, false) }
            if let known = state.byNumber[task.id] ?? state.byToken[task.request.token] {
                state.byNumber[task.id] = known
                return (known, true)
            }
            record.wasDiscovered(at: state.attachments)
            let new =
                task.request.kind == .download
                ? URLSessionDownloadTask(record, session: self)
                : URLSessionUploadTask(record, session: self)
            state.tasks[ObjectIdentifier(new)] = new
            state.byNumber[task.id] = new
            return (new, false)
        }
        guard let adopted, isKnown else { return adopted }
        adopted.record.withLock { record in
            record.wasCreated(as: task.id)
            record.update(task)
        }
        return adopted
    }

    /// Fails tasks that could not be sent to a daemon within their time limit.
    func expireTasks(now: ContinuousClock.Instant) {
        for task in unfinished {
            let error = task.record.withLock { record -> URLError? in
                guard record.isOnlyHere, !record.isSuspended, !record.hasEnded,
                    let created = record.daemon?.created
                else { return nil }
                let age = (now - created) / .seconds(1)
                if age > rules.timeoutIntervalForResource {
                    return URLError(
                        .timedOut,
                        reason: "no daemon could be reached within the time limit"
                    )
                }
                guard let limit = rules.timeoutIntervalForService, age > limit else { return nil }
                return URLError(of: link.problem ?? .notRunning([]))
            }
            if let error { end(task, with: error) }
        }
    }

    /// Marks the session to end after its last task.
    func invalidate() {
        guard self !== URLSession.shared else { return }
        state.withLock { $0.isInvalidating = true }
        delegateCalls.add { [self] in endIfDone() }
    }

    /// Ends the session if it is marked to end and has no tasks; called after each call of the delegate.
    func endIfDone() {
        // Events that a reader is handling are acknowledged before the end.
        if let relay, state.withLock(\.isDone) {
            guard relay.isRead(orElse: { [self] in delegateCalls.add { [self] in endIfDone() } })
            else {
                return
            }
        }
        let left = state.withLock { state -> [URLSessionTask]? in
            state.isDone ? state.end() : nil
        }
        // The tasks are released without the lock.
        guard left != nil else { return }
        if isForeground {
            engine.invalidate()
            return becomeInvalid(nil)
        }
        guard SessionRegistry.session(link.identifier) === self else { return }
        link.end { [self] in
            SessionRegistry.remove(self)
            delegateCalls.add { [self] in becomeInvalid(nil) }
        }
    }

    /// Notifies the delegate that the session has ended, and releases it.
    func becomeInvalid(_ error: (any Error)?) {
        delegate?.urlSession(self, didBecomeInvalidWithError: error)
        relay?.finish()
        state.withLock { $0.delegate = nil }
    }
}

extension URLSession.State {
    /// `true` if the session is invalidated, has not ended, and has no task that it must wait for.
    ///
    /// It does not wait for a task that was created after the invalidation and never resumed.
    fileprivate var isDone: Bool {
        guard isInvalidating, !isOver else { return false }
        return tasks.allSatisfy { id, task in
            lateTasks.contains(id)
                && task.record.withLock { $0.isSuspended && !$0.isCancelled && !$0.hasEnded }
        }
    }

    /// Records the end of the session, and returns the tasks that it did not wait for.
    fileprivate mutating func end() -> [URLSessionTask] {
        isOver = true
        defer { (tasks, byToken, lateTasks) = ([:], [:], []) }
        return Array(tasks.values)
    }
}

extension URLSessionTask {
    /// Records the daemon's number of the task.
    func wasCreated(as number: Int64) {
        session.state.withLock { state in
            // The end of the task may have been delivered before the response to the request that created it.
            guard state.tasks[ObjectIdentifier(self)] != nil else { return }
            state.byNumber[number] = self
        }
        record.withLock { $0.wasCreated(as: number) }
    }

    /// Token that identifies the task to the daemon and its clients.
    var token: String { record.withLock { $0.request.token } }
}

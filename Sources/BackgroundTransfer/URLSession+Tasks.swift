import Foundation
import StageControl
import Synchronization

extension URLSession {
    /// Begins to take events in, or to say why there are none.
    func begin() {
        guard SessionRegistry.register(self) else {
            state.withLock { $0.isInvalidating = true }
            let error = Self.inUse(link.identifier)
            feed.add { [self] in becomeInvalid(error) }
            return
        }
        link.start(self)
    }

    /// Makes tasks and has the daemon create them, where it is there.
    func make<Task: URLSessionTask>(_ drafts: [Draft], _ build: (TaskRecord) -> Task) -> [Task] {
        let isOpen = state.withLock { !$0.isInvalidating }
        let isRegistered = SessionRegistry.session(link.identifier) === self
        let tasks = drafts.map { draft in
            var record = TaskRecord(draft.request, created: .now)
            record.refusal = draft.problem
            if !isRegistered { record.refusal = Self.inUse(link.identifier) }
            if isRegistered && !isOpen {
                let reason = "the session '\(link.identifier)' was invalidated and takes no tasks"
                record.refusal = URLError(.backgroundSessionWasDisconnected, reason: reason)
            }
            return build(record)
        }
        state.withLock { state in
            for task in tasks { state.tasks[ObjectIdentifier(task)] = task }
        }
        tell(tasks.filter { $0.record.withLock { $0.refusal == nil } })
        for task in tasks {
            giveIdentifier(task)
            feed.add { [self] in
                guard let delegate = delegate as? any URLSessionTaskDelegate else { return }
                delegate.urlSession(self, didCreateTask: task)
            }
        }
        return tasks
    }

    private static func inUse(_ identifier: String) -> URLError {
        URLError(
            .backgroundSessionInUseByAnotherProcess,
            reason: "this process has a session '\(identifier)' already, and there can be one only"
        )
    }

    private func giveIdentifier(_ task: URLSessionTask) {
        let provisional = state.withLock { state in
            state.lastProvisional -= 1
            return state.lastProvisional
        }
        task.record.withLock { record in
            record.identifier = record.number.map { Int($0) } ?? provisional
        }
    }

    /// Tells the daemon what has changed about a task, or ends it here where it has none to do with it.
    func tell(_ task: URLSessionTask) { tell([task]) }

    /// Tells the daemon what has changed about tasks.
    func tell(_ tasks: [URLSessionTask]) {
        var others: [URLSessionTask] = []
        for task in tasks {
            let error = task.record.withLock { record -> URLError? in
                if record.isCancelled && record.isOnlyHere { return URLError(.cancelled) }
                return record.isSuspended ? nil : record.refusal
            }
            if let error { end(task, error) } else { others.append(task) }
        }
        guard !others.isEmpty else { return }
        link.tell(others) { task, error in
            let mustEnd = task.record.withLock { record in
                record.refusal = URLError(error)
                return !record.isSuspended
            }
            if mustEnd { end(task, URLError(error)) }
        }
    }

    /// Takes in which tasks the daemon has.
    func reconcile(with list: [TransferTask]) {
        // The answer to the request that created a task may have been lost.
        var mine: [String: URLSessionTask] = [:]
        for task in unfinished {
            let token = task.record.withLock { $0.number == nil ? $0.request.token : nil }
            if let token { mine[token] = task }
        }
        for task in list {
            mine[task.request.token]?.wasCreated(as: task.id)
            adopt(task)
        }
        let known = Set(list.map(\.id))
        state.withLock { $0.ended.formIntersection(known) }
        for task in unfinished {
            let isGone = task.record.withLock { record in
                guard let number = record.number, !record.hasEnded else { return false }
                return !known.contains(number)
            }
            guard isGone else { continue }
            let reason = "the daemon does not know the task any more"
            end(task, URLError(.backgroundSessionWasDisconnected, reason: reason))
        }
    }

    /// Takes in a task of the daemon's: one that is known here, or an object for it is made; `nil` for one
    /// whose end was told.
    @discardableResult
    func adopt(_ task: TransferTask) -> URLSessionTask? {
        guard !state.withLock({ $0.ended.contains(task.id) }) else { return nil }
        if let known = state.withLock({ $0.byNumber[task.id] }) {
            known.record.withLock { $0.update(task) }
            return known
        }
        let record = TaskRecord(task)
        let adopted =
            task.request.kind == .download
            ? URLSessionDownloadTask(record, session: self)
            : URLSessionUploadTask(record, session: self)
        state.withLock { state in
            state.tasks[ObjectIdentifier(adopted)] = adopted
            state.byNumber[task.id] = adopted
        }
        return adopted
    }

    /// Fails tasks that no daemon could be told of for too long.
    func expireTasks(now: Date) {
        let rules = configuration
        for task in unfinished {
            let error = task.record.withLock { record -> URLError? in
                guard record.isOnlyHere, !record.isSuspended, !record.hasEnded else { return nil }
                let age = now.timeIntervalSince(record.created)
                if age > rules.timeoutIntervalForResource {
                    return URLError(.timedOut, reason: "no daemon was there in time")
                }
                guard let limit = rules.timeoutIntervalForService, age > limit else { return nil }
                return URLError(link.problem ?? .notRunning([]))
            }
            if let error { end(task, error) }
        }
    }

    /// Lets the tasks end and then the session.
    func invalidate() {
        state.withLock { $0.isInvalidating = true }
        feed.add { [self] in endIfDone() }
    }

    /// Ends the session if it is to end and no task is left; called after each call of the delegate.
    func endIfDone() {
        let isDone = state.withLock { state in
            guard state.isInvalidating, state.tasks.isEmpty, !state.isOver else { return false }
            state.isOver = true
            return true
        }
        guard isDone else { return }
        guard SessionRegistry.session(link.identifier) === self else { return }
        link.end { [self] in
            SessionRegistry.remove(self)
            feed.add { [self] in becomeInvalid(nil) }
        }
    }

    /// Tells the delegate that the session is over, and lets it go.
    func becomeInvalid(_ error: (any Error)?) {
        delegate?.urlSession(self, didBecomeInvalidWithError: error)
        relay?.finish()
        state.withLock { $0.delegate = nil }
    }
}

extension URLSessionTask {
    /// Takes in the number that the daemon gave the task.
    func wasCreated(as number: Int64) {
        record.withLock { $0.wasCreated(as: number) }
        session.state.withLock { $0.byNumber[number] = self }
    }
}

/// The sessions of this process.
enum SessionRegistry {
    private static let sessions = Mutex<[String: URLSession]>([:])

    /// Enters a session; returns `false` if there is another one of its identifier.
    static func register(_ session: URLSession) -> Bool {
        sessions.withLock { sessions in
            guard sessions[session.link.identifier] == nil else { return false }
            sessions[session.link.identifier] = session
            return true
        }
    }

    /// The session of an identifier.
    static func session(_ identifier: String) -> URLSession? {
        sessions.withLock { $0[identifier] }
    }

    /// Takes a session out.
    static func remove(_ session: URLSession) {
        sessions.withLock { $0[session.link.identifier] = nil }
    }
}

import Foundation
import StageControl
import Synchronization

extension URLSession {
    /// Begins to take events in, or to say why there are none.
    func begin() {
        if !link.identifier.isEmpty && SessionRegistry.register(self) {
            do throws(ControlError) {
                try link.start(self)
                return
            } catch {
                // It can be made again as soon as the process may have more threads.
                state.withLock { [error] in $0.failure = URLError(error) }
                SessionRegistry.remove(self)
            }
        }
        state.withLock { $0.isInvalidating = true }
        // Calls that wait for the tasks of the session learn that there are none.
        link.end {}
        let error = refusal
        feed.add { [self] in becomeInvalid(error) }
    }

    /// Why the session takes no tasks, if it takes none.
    private var refusal: URLError? {
        if let failure = state.withLock({ $0.failure }) { return failure }
        if link.identifier.isEmpty {
            let reason = "a background session needs an identifier that is not empty"
            return URLError(.unsupportedURL, reason: reason)
        }
        guard SessionRegistry.session(link.identifier) === self else {
            let name = link.identifier
            return URLError(
                .backgroundSessionInUseByAnotherProcess,
                reason: "this process has a session '\(name)' already, and there can be one only"
            )
        }
        guard state.withLock({ $0.isInvalidating }) else { return nil }
        let reason = "the session '\(link.identifier)' was invalidated and takes no tasks"
        return URLError(.backgroundSessionWasDisconnected, reason: reason)
    }

    /// Makes tasks and has the daemon create them, where it is there.
    func make<Task: URLSessionTask>(_ drafts: [Draft], _ build: (TaskRecord) -> Task) -> [Task] {
        let refusal = refusal
        let tasks = drafts.map { draft in
            var record = TaskRecord(draft.request, created: .now)
            record.refusal = draft.problem ?? refusal
            record.original = draft.original
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

    private func giveIdentifier(_ task: URLSessionTask) {
        if let number = task.record.withLock({ $0.number }) {
            task.record.withLock { $0.identifier = Int(number) }
            return
        }
        let provisional = state.withLock { state in
            state.lastProvisional -= 1
            return state.lastProvisional
        }
        task.record.withLock { $0.identifier = provisional }
    }

    /// Tells the daemon what has changed about a task, or ends it here where it has none to do with it.
    func tell(_ task: URLSessionTask) { tell([task]) }

    /// Tells the daemon what has changed about tasks; returns why it has to be told again, if it has.
    @discardableResult
    func tell(_ tasks: [URLSessionTask]) -> ControlError? {
        var others: [URLSessionTask] = []
        for task in tasks {
            let error = task.record.withLock { record -> URLError? in
                if record.isCancelled && record.isOnlyHere { return URLError(.cancelled) }
                return record.isSuspended ? nil : record.refusal
            }
            if let error { end(task, error) } else { others.append(task) }
        }
        guard !others.isEmpty else { return nil }
        return link.tell(others) { task, error in
            let refusal = task.record.withLock { record in
                let refusal = URLError(error, resuming: record.request.resumeToken != nil)
                record.refusal = refusal
                return record.isSuspended ? nil : refusal
            }
            if let refusal { end(task, refusal) }
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
        let known = Dictionary(list.map { ($0.id, $0.request.token) }) { first, _ in first }
        state.withLock { $0.ended.formIntersection(known.keys) }
        let attachments = state.withLock { $0.attachments }
        for task in unfinished {
            let (isGone, found) = task.record.withLock { record -> (Bool, Int?) in
                guard let number = record.number, !record.hasEnded else { return (false, nil) }
                // A daemon that has lost its records gives the number to another task.
                return (known[number] != record.request.token, record.found)
            }
            guard isGone else { continue }
            if found == attachments {
                // Whoever was attached before this session has taken its end in.
                drop(task)
                continue
            }
            let reason = "the daemon does not know the task: another process may have its end"
            end(task, URLError(.backgroundSessionWasDisconnected, reason: reason))
        }
    }

    /// Forgets a task of which nothing was told, and nothing is going to be.
    private func drop(_ task: URLSessionTask) {
        task.record.withLock { $0.end() }
        state.withLock { state in
            state.tasks[ObjectIdentifier(task)] = nil
            if let number = task.record.withLock({ $0.number }) { state.byNumber[number] = nil }
        }
        feed.add { [self] in endIfDone() }
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
        var record = TaskRecord(task)
        record.found = state.withLock { $0.attachments }
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
        // What a reader has in its hands is acknowledged before the end.
        if let relay, state.withLock({ $0.isInvalidating && $0.tasks.isEmpty && !$0.isOver }) {
            guard relay.isRead(orElse: { [self] in feed.add { [self] in endIfDone() } }) else {
                return
            }
        }
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

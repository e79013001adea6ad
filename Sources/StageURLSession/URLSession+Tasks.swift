import Foundation
import StageControl
import Synchronization

extension URLSession {
    /// Begins to take events in, or to say why there are none.
    func begin() {
        // Calls that wait for the tasks of the session have those of this process.
        if isForeground { return link.end {} }
        if !link.identifier.isEmpty && SessionRegistry.register(self) {
            do throws(ControlError) {
                try link.start(self)
                return
            } catch {
                // It can be made again as soon as the process may have more threads.
                state.withLock { [error] in $0.failure = URLError(of: error) }
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
                reason: "this process has a session '\(name)' already, and there can be one only"
            )
        }
        return state.withLock { $0.isInvalidating } ? invalidation : nil
    }

    /// The error of tasks that are created after the session was invalidated.
    var invalidation: URLError {
        guard !isForeground else {
            return URLError(.cancelled, reason: "the session was invalidated and takes no tasks")
        }
        let reason = "the session '\(link.identifier)' was invalidated and takes no tasks"
        return URLError(.backgroundSessionWasDisconnected, reason: reason)
    }

    /// Makes tasks, and has the daemon told of them.
    func make<Task: URLSessionTask>(_ drafts: [Draft], _ build: (TaskRecord) -> Task) -> [Task] {
        let refusal = refusal
        let tasks = drafts.map { draft in
            let identity = TaskIdentity(at: .now)
            var request = draft.request
            request.token = identity.newToken
            var record = TaskRecord(request, created: .now)
            record.identifier = identity.number
            record.refusal = draft.problem ?? refusal ?? (isForeground ? .backgroundTransfer : nil)
            record.original = draft.original
            return build(record)
        }
        state.withLock { state in
            for task in tasks {
                if state.isInvalidating {
                    task.record.withLock { $0.refusal = $0.refusal ?? invalidation }
                }
                state.tasks[ObjectIdentifier(task)] = task
                state.byToken[task.token] = task
            }
        }
        for task in tasks { tellCreation(of: task) }
        tell(tasks)
        return tasks
    }

    /// Has the delegate told of a new task.
    func tellCreation(of task: URLSessionTask) {
        feed.add { [self] in
            guard let delegate = delegate as? any URLSessionTaskDelegate else { return }
            delegate.urlSession(self, didCreateTask: task)
        }
    }

    /// Has the daemon told what has changed about a task, or ends it here where the daemon has no part in it.
    func tell(_ task: URLSessionTask) { tell([task]) }

    /// Has the daemon told what has changed about tasks; returns at once.
    func tell(_ tasks: [URLSessionTask]) {
        guard !isForeground else {
            for task in tasks { drive(task) }
            return
        }
        link.tell(tasks.filter { !endIfUnsendable($0) && $0.record.withLock(\.mustBeTold) })
    }

    /// Ends a task here if it was refused, or was cancelled before the daemon had it; returns whether it did.
    @discardableResult
    func endIfUnsendable(_ task: URLSessionTask) -> Bool {
        guard let error = task.record.withLock(\.reasonToEnd) else { return false }
        end(task, error)
        return true
    }

    /// Takes in that the daemon refused a task or a change of it.
    func takeRefusal(of task: URLSessionTask, _ error: ControlError) {
        task.record.withLock { record in
            record.refusal = URLError(of: error, resuming: record.request.resumeToken != nil)
        }
        endIfUnsendable(task)
    }

    /// The numbers of the tasks that the daemon is known to have.
    var numbers: Set<Int64> { state.withLock { Set($0.byNumber.keys) } }

    /// Takes in which tasks the daemon has; `earlier` are those that it was known to have before it was asked.
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
        task.record.withLock { _ = $0.end() }
        state.withLock { state in
            state.tasks[ObjectIdentifier(task)] = nil
            state.byToken[task.token] = nil
            if let number = task.record.withLock({ $0.number }) { state.byNumber[number] = nil }
        }
        link.remove(task)
        feed.add { [self] in endIfDone() }
    }

    /// Takes in a task of the daemon's: one that is known here, also where the answer to the request that created it
    /// has not come, or an object for it is made; `nil` for one whose end was told.
    @discardableResult
    func adopt(_ task: TransferTask) -> URLSessionTask? {
        var record = TaskRecord(task)
        let (adopted, isKnown) = state.withLock { state -> (URLSessionTask?, Bool) in
            if state.ended.contains(task.id) { return (nil, false) }
            if let known = state.byNumber[task.id] ?? state.byToken[task.request.token] {
                state.byNumber[task.id] = known
                return (known, true)
            }
            record.found = state.attachments
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
                return URLError(of: link.problem ?? .notRunning([]))
            }
            if let error { end(task, error) }
        }
    }

    /// Lets the tasks end and then the session.
    func invalidate() {
        guard self !== URLSession.shared else { return }
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
        if isForeground {
            engine.invalidate()
            return becomeInvalid(nil)
        }
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
        session.state.withLock { state in
            // Its end may have been told before the answer to the request that created it.
            guard state.tasks[ObjectIdentifier(self)] != nil else { return }
            state.byNumber[number] = self
        }
        record.withLock { $0.wasCreated(as: number) }
    }

    /// The name of the task that the daemon and its clients have in common.
    var token: String { record.withLock { $0.request.token } }
}

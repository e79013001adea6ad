import StageControl
import StageSystem
import Synchronization

/// Requests that inform the daemon of tasks and of their changes.
extension SessionLink {
    /// Queues tasks for the requests to the daemon, and returns at once.
    func enqueue(_ tasks: [URLSessionTask]) {
        guard !tasks.isEmpty else { return }
        let lanes = tasks.map(\.lane)
        let (idle, isPaused) = outbox.change { outbox in
            let idle = zip(tasks, lanes).filter { outbox.add($0, to: $1) }.map(\.1)
            return (idle, outbox.isPaused)
        }
        for lane in idle { begin(lane) }
        // Nothing is sent while there is no connection: try to connect now.
        if isPaused { connection.whenSettled { _ in } }
    }

    /// Returns the current position, for ``whenSent(since:_:)``.
    func takePosition() -> Int { outbox.change { $0.takePosition() } }

    /// Calls `body` once the daemon has been informed of everything queued since a position.
    func whenSent(since position: Int = 0, _ body: @escaping @Sendable () -> Void) {
        outbox.change { $0.wait(since: position, acceptsFailure: false, body) }
        callWaiters()
    }

    /// Calls `body` once the daemon has been informed of everything queued so far, or could not be reached.
    func whenSentOrFailed(_ body: @escaping @Sendable () -> Void) {
        let isPaused = outbox.change { outbox in
            outbox.wait(acceptsFailure: true, body)
            return outbox.isPaused
        }
        callWaiters()
        if isPaused { connection.whenSettled { _ in } }
    }

    /// Removes a task that has ended from the queue.
    func remove(_ task: URLSessionTask) {
        outbox.change { $0.remove(task) }
        callWaiters()
    }

    /// Resumes sending after a connection was established.
    func resumeSending() {
        for lane in outbox.change({ $0.resume() }) { begin(lane) }
    }

    /// Handles the loss of the connection.
    func wasDetached(by problem: ControlError) {
        outbox.change { outbox in
            // A daemon that refuses to send events to this process may still accept requests.
            if case .refused = problem, !outbox.isPaused { return }
            outbox.fail()
        }
        callWaiters()
    }

    private func callWaiters() {
        var bodies = outbox.change { $0.takeDueWaiters(hasCalled: false) }
        while !bodies.isEmpty {
            for body in bodies { body() }
            bodies = outbox.change { $0.takeDueWaiters(hasCalled: true) }
        }
    }

    private func begin(_ lane: TaskOutbox<URLSessionTask>.Lane) {
        do throws(FileError) {
            try SystemThread(name: "stage-tasks") { [self] in run(lane) }.detach()
        } catch {
            // The process may have no more threads: the caller waits.
            run(lane)
        }
    }

    private func run(_ lane: TaskOutbox<URLSessionTask>.Lane) {
        // The daemon copies each file before it responds: an upload of its own request does not delay others.
        let limit = lane == .uploads ? 1 : ControlFormat.taskLimit
        let start = Backoff(longest: .seconds(30), stableTime: .seconds(1))
        var backoff = start
        while case let batch = outbox.change({ $0.take(lane, atMost: limit) }), !batch.isEmpty {
            var delay: Duration?
            do throws(ControlError) {
                try create(batch)
                try change(batch)
                backoff = start
                for lane in outbox.change({ $0.finish(batch) { $0.lane } }) { begin(lane) }
            } catch {
                if case .refused(let refusal) = error,
                    refusal.isShortage || lane == .uploads && refusal.code == .unavailable
                {
                    delay = backoff.next()
                }
                for lane in giveBack(batch, isDelayed: delay != nil) { begin(lane) }
            }
            // A task that was refused, or was cancelled before the daemon had it, ends here.
            for task in batch { task.session.endIfUnsendable(task) }
            callWaiters()
            if let delay {
                // The daemon lacks descriptors to copy the file, or disk space, now: other tasks are sent meanwhile.
                _ = outbox.wait(atMost: Backoff.shortest) { $0.isPaused ? true : nil }
                _ = outbox.wait(atMost: delay) { $0.hasFailedTasksOnly(lane) ? nil : true }
            } else if outbox.change(\.isPaused) {
                // Everything else is sent over the next connection.
                connection.reconnect()
            }
        }
        callWaiters()
    }

    /// Returns tasks of a failed batch to their queue: to its end, to be sent after a delay, or to its front, for the
    /// next connection; returns the queues that need a thread.
    private func giveBack(
        _ batch: [URLSessionTask],
        isDelayed: Bool
    ) -> [TaskOutbox<URLSessionTask>.Lane] {
        // Tasks without unsent changes leave the queue, so that their waiters do not wait for the other tasks of the batch.
        let isUnsent = batch.map { $0.record.withLock(\.hasUnsentChanges) }
        let unsent = zip(batch, isUnsent).filter(\.1).map(\.0)
        let sent = zip(batch, isUnsent).filter { !$0.1 }.map(\.0)
        return outbox.change { outbox in
            outbox.giveBack(unsent, asLast: isDelayed)
            if isDelayed {
                outbox.fail(unsent)
            } else {
                outbox.pause()
                outbox.fail()
            }
            return outbox.finish(sent) { $0.lane }
        }
    }

    private func create(_ tasks: [URLSessionTask]) throws(ControlError) {
        var new: [URLSessionTask] = []
        var requests: [TransferRequest] = []
        for task in tasks {
            let request = task.record.withLock { record -> TransferRequest? in
                guard record.number == nil, case .create(let request)? = record.nextStep() else {
                    return nil
                }
                return request
            }
            guard let request else { continue }
            new.append(task)
            requests.append(request)
        }
        guard !new.isEmpty else { return }
        do throws(ControlError) {
            // The daemon copies files before it responds, which may take long.
            let isCopy = requests.contains { $0.kind == .upload }
            let ids = try client.createTasks(
                requests,
                launch: launch?.token,
                timeout: isCopy ? .zero : nil
            )
            for (task, id) in zip(new, ids) { task.wasCreated(as: id) }
        } catch {
            guard case .refused(let refusal) = error,
                ![.unavailable, .notFound].contains(refusal.code)
            else {
                switch error {
                case .lost, .malformed, .tooLarge: break
                default: for task in new { task.record.withLock { $0.creationWasNotSent() } }
                }
                throw error
            }
            for task in new { task.record.withLock { $0.creationWasNotSent() } }
            guard new.count > 1 else {
                // The description may be too long: the task must run nevertheless, as after a refused change.
                if refusal.code == .invalid, new[0].record.withLock({ $0.omitDetails() }) {
                    return try create(new)
                }
                new[0].session.handleRefusal(of: new[0], error: error)
                return
            }
            // The daemon refused all tasks: bisect to find the invalid one, or a batch that fits into a request.
            try create(Array(new[..<(new.count / 2)]))
            try create(Array(new[(new.count / 2)...]))
        }
    }

    private func change(_ tasks: [URLSessionTask]) throws(ControlError) {
        var changes: [(task: URLSessionTask, change: TaskChange)] = []
        for task in tasks {
            let step = task.record.withLock { $0.number == nil ? nil : $0.nextStep() }
            guard case .change(let id, let change)? = step else { continue }
            changes.append((task, TaskChange(id, change: change)))
        }
        try send(changes[...])
    }

    private func send(
        _ changes: ArraySlice<(task: URLSessionTask, change: TaskChange)>
    ) throws(ControlError) {
        guard changes.count > 1 else {
            for (task, change) in changes { try send(change, of: task) }
            return
        }
        let refusals: [Int64: ControlRefusal]
        do throws(ControlError) {
            refusals = try client.changeTasks(changes.map(\.change))
        } catch .refused(let refusal) where !refusal.isTemporary {
            // The daemon refused the whole request: bisect to find the invalid change, or a batch that fits into a
            // request.
            let middle = (changes.startIndex + changes.endIndex) / 2
            do throws(ControlError) {
                try send(changes[..<middle])
            } catch {
                Self.keep(changes[middle...])
                throw error
            }
            try send(changes[middle...])
            return
        } catch {
            Self.keep(changes)
            throw error
        }
        try take(refusals, of: changes)
    }

    /// Records the daemon's response to several changes.
    private func take(
        _ refusals: [Int64: ControlRefusal],
        of changes: ArraySlice<(task: URLSessionTask, change: TaskChange)>
    ) throws(ControlError) {
        var temporary: ControlRefusal?
        for (task, change) in changes {
            guard let refusal = refusals[change.task] else {
                task.record.withLock { $0.didSend() }
                continue
            }
            guard refusal.isTemporary else {
                handleRefusal(refusal, of: task, change: change.change)
                continue
            }
            task.record.withLock { $0.didNotSend(change.change) }
            temporary = refusal
        }
        if let temporary { throw .refused(temporary) }
    }

    /// Records that the daemon did not receive changes.
    private static func keep(_ changes: ArraySlice<(task: URLSessionTask, change: TaskChange)>) {
        for (task, change) in changes { task.record.withLock { $0.didNotSend(change.change) } }
    }

    private func send(_ change: TaskChange, of task: URLSessionTask) throws(ControlError) {
        let events = task.record.withLock { $0.daemon?.eventCount }
        do throws(ControlError) {
            let answer = try client.change(change.task, by: change.change)
            task.record.withLock { record in
                record.didSend()
                // An event that arrived meanwhile is newer than the response.
                if record.daemon?.eventCount == events { record.update(answer) }
            }
        } catch {
            guard case .refused(let refusal) = error, !refusal.isTemporary else {
                task.record.withLock { $0.didNotSend(change.change) }
                throw error
            }
            handleRefusal(refusal, of: task, change: change.change)
        }
    }

    /// Handles the refusal of a change, except a temporary one: sends what the daemon may accept of it.
    ///
    /// The task ends only if the daemon does not know it: otherwise the daemon continues it, and sends its end.
    private func handleRefusal(
        _ refusal: ControlRefusal,
        of task: URLSessionTask,
        change: TransferChange
    ) {
        guard refusal.code != .notFound else {
            task.record.withLock { $0.didSend() }
            task.session.handleRefusal(of: task, error: .refused(refusal))
            return
        }
        guard let rest = change.rest(after: refusal) else {
            task.record.withLock { $0.didSend() }
            return
        }
        task.record.withLock { $0.didNotSend(rest) }
        outbox.change { $0.addRest(of: task) }
    }
}

extension TransferChange {
    /// Returns the part of a refused change that the daemon may accept; `nil` if there is none.
    fileprivate func rest(after refusal: ControlRefusal) -> TransferChange? {
        var rest = self
        if refusal.code == .conflict {
            // The task no longer waits for an answer to a challenge, or it has ended, and the event about that will
            // arrive.
            (rest.authorization, rest.rejectsChallenge) = (nil, nil)
        } else {
            // A value is invalid, often the description; the task must run or end nevertheless.
            rest = TransferChange()
            (rest.state, rest.producesResumeToken) = (state, producesResumeToken)
            (rest.authorization, rest.rejectsChallenge) = (authorization, rejectsChallenge)
            if rest == self, authorization != nil {
                (rest.authorization, rest.rejectsChallenge) = (nil, true)
            }
        }
        return rest == self || rest == TransferChange() ? nil : rest
    }
}

extension URLSessionTask {
    /// The queue in which the daemon is informed of the task.
    fileprivate var lane: TaskOutbox<URLSessionTask>.Lane {
        record.withLock { $0.request.kind == .upload && $0.number == nil ? .uploads : .requests }
    }
}

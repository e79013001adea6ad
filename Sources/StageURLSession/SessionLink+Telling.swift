import StageControl
import StageSystem
import Synchronization

/// The requests by which the daemon learns of tasks and of their changes.
extension SessionLink {
    /// Has the daemon told of tasks, and returns at once.
    func tell(_ tasks: [URLSessionTask]) {
        guard !tasks.isEmpty else { return }
        let lanes = tasks.map(\.lane)
        let (idle, isPaused) = outbox.change { outbox in
            let idle = zip(tasks, lanes).filter { outbox.add($0, to: $1) }.map(\.1)
            return (idle, outbox.isPaused)
        }
        for lane in idle { begin(lane) }
        // Nothing is sent before there is a connection again: that is tried now.
        if isPaused { connection.whenSettled { _ in } }
    }

    /// The present moment, for ``whenTold(since:_:)``.
    func mark() -> Int { outbox.change { $0.mark() } }

    /// Calls `body` once the daemon was told of everything that was to be told since a moment.
    func whenTold(since mark: Int = 0, _ body: @escaping @Sendable () -> Void) {
        outbox.change { $0.wait(since: mark, acceptsFailure: false, body) }
        callWaiters()
    }

    /// Calls `body` once the daemon was told of everything that is to be told by now, or could not be.
    func whenToldOrNot(_ body: @escaping @Sendable () -> Void) {
        let isPaused = outbox.change { outbox in
            outbox.wait(acceptsFailure: true, body)
            return outbox.isPaused
        }
        callWaiters()
        if isPaused { connection.whenSettled { _ in } }
    }

    /// Takes in that the daemon need not be told of a task, which has ended.
    func remove(_ task: URLSessionTask) {
        outbox.change { $0.remove(task) }
        callWaiters()
    }

    /// Has tasks told that wait for a connection.
    func resumeTelling() {
        for lane in outbox.change({ $0.resume() }) { begin(lane) }
    }

    /// Takes in that there is no connection, and why.
    func wasDetached(by problem: ControlError) {
        outbox.change { outbox in
            // A daemon that refuses events to this process may be told of tasks all the same.
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
        // The daemon copies each file, however long that takes: the next upload does not make it longer.
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
                if lane == .uploads, case .refused(let refusal) = error,
                    refusal.code == .unavailable
                {
                    delay = backoff.next()
                }
                outbox.change { [delay] outbox in
                    outbox.giveBack(batch, asLast: delay != nil)
                    guard delay == nil else { return outbox.fail(batch) }
                    outbox.pause()
                    outbox.fail()
                }
            }
            // One that was refused, or was cancelled before the daemon had it, ends here.
            for task in batch { task.session.endIfUnsendable(task) }
            callWaiters()
            if let delay {
                // The daemon has no descriptors to copy its file now: other tasks are told meanwhile.
                _ = outbox.wait(atMost: Backoff.shortest) { $0.isPaused ? true : nil }
                _ = outbox.wait(atMost: delay) { $0.hasFailedTasksOnly(lane) ? nil : true }
            } else if outbox.change(\.isPaused) {
                // Everything else is told over the next connection.
                connection.reconnect()
            }
        }
        callWaiters()
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
            // The daemon copies files before it answers, however long that takes.
            let isCopy = requests.contains { $0.kind == .upload }
            let ids = try client.createTasks(
                requests,
                launch: launch?.token,
                patience: isCopy ? .zero : nil
            )
            for (task, id) in zip(new, ids) { task.wasCreated(as: id) }
        } catch {
            guard case .refused(let refusal) = error,
                ![.unavailable, .notFound].contains(refusal.code)
            else {
                switch error {
                case .lost, .malformed, .tooLarge: break
                default: for task in new { task.record.withLock { $0.wasNotSent() } }
                }
                throw error
            }
            for task in new { task.record.withLock { $0.wasNotSent() } }
            guard new.count > 1 else {
                new[0].session.takeRefusal(of: new[0], error)
                return
            }
            // All or none: which it was is found out by halves, and so is what fits into a request.
            try create(Array(new[..<(new.count / 2)]))
            try create(Array(new[(new.count / 2)...]))
        }
    }

    private func change(_ tasks: [URLSessionTask]) throws(ControlError) {
        var changes: [(task: URLSessionTask, change: TaskChange)] = []
        for task in tasks {
            let step = task.record.withLock { $0.number == nil ? nil : $0.nextStep() }
            guard case .change(let id, let change)? = step else { continue }
            changes.append((task, TaskChange(id, change)))
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
        do throws(ControlError) {
            let refusals = try client.changeTasks(changes.map(\.change))
            for (task, change) in changes {
                if let refusal = refusals[change.task] {
                    takeRefusal(refusal, of: task, change.change)
                } else {
                    task.record.withLock { $0.wasTold() }
                }
            }
        } catch .refused(let refusal) where refusal.code != .unavailable {
            // The request as a whole: which change it was is found out by halves, and so is what fits into a request.
            let middle = (changes.startIndex + changes.endIndex) / 2
            do throws(ControlError) {
                try send(changes[..<middle])
            } catch {
                Self.keep(changes[middle...])
                throw error
            }
            try send(changes[middle...])
        } catch {
            Self.keep(changes)
            throw error
        }
    }

    /// Takes in that the daemon could not be told of changes.
    private static func keep(_ changes: ArraySlice<(task: URLSessionTask, change: TaskChange)>) {
        for (task, change) in changes { task.record.withLock { $0.wasNotTold(change.change) } }
    }

    private func send(_ change: TaskChange, of task: URLSessionTask) throws(ControlError) {
        let events = task.record.withLock(\.eventCount)
        do throws(ControlError) {
            let answer = try client.change(change.task, change.change)
            task.record.withLock { record in
                record.wasTold()
                // An event that came meanwhile may say more than the answer does.
                if record.eventCount == events { record.update(answer) }
            }
        } catch {
            guard case .refused(let refusal) = error, refusal.code != .unavailable else {
                task.record.withLock { $0.wasNotTold(change.change) }
                throw error
            }
            takeRefusal(refusal, of: task, change.change)
        }
    }

    private func takeRefusal(
        _ refusal: ControlRefusal,
        of task: URLSessionTask,
        _ change: TransferChange
    ) {
        guard refusal.code == .conflict else {
            task.record.withLock { $0.wasTold() }
            task.session.takeRefusal(of: task, .refused(refusal))
            return
        }
        // The task waits for no answer to a challenge any more, or it has ended, and its end is on its way.
        var rest = change
        (rest.authorization, rest.rejectsChallenge) = (nil, nil)
        guard rest != change, rest != TransferChange() else {
            task.record.withLock { $0.wasTold() }
            return
        }
        task.record.withLock { $0.wasNotTold(rest) }
        tell([task])
    }
}

extension URLSessionTask {
    /// The lane in which the daemon is told of the task.
    fileprivate var lane: TaskOutbox<URLSessionTask>.Lane {
        record.withLock { $0.request.kind == .upload && $0.number == nil ? .uploads : .requests }
    }
}

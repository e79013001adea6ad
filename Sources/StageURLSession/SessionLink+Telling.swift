import StageControl
import StageSystem
import Synchronization

/// The requests by which the daemon learns of tasks and of their changes.
extension SessionLink {
    /// The tasks to tell of, and the calls that wait until that is done.
    struct Outbox {
        var tasks = TaskOutbox<URLSessionTask>()
        var waiters: [@Sendable () -> Void] = []
    }

    /// Has the daemon told of tasks, and returns at once.
    func tell(_ tasks: [URLSessionTask]) {
        guard !tasks.isEmpty else { return }
        let lanes = tasks.map { task in
            task.record.withLock { record -> TaskOutbox<URLSessionTask>.Lane in
                record.request.kind == .upload && record.number == nil ? .uploads : .requests
            }
        }
        let idle = outbox.withLock { outbox in
            zip(tasks, lanes).filter { outbox.tasks.add($0, to: $1) }.map(\.1)
        }
        for lane in idle { start(lane) }
    }

    /// Calls `body` once the daemon was told of everything, or could not be.
    func whenTold(_ body: @escaping @Sendable () -> Void) {
        let isIdle = outbox.withLock { outbox in
            if !outbox.tasks.isIdle { outbox.waiters.append(body) }
            return outbox.tasks.isIdle
        }
        if isIdle { body() }
    }

    private func start(_ lane: TaskOutbox<URLSessionTask>.Lane) {
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
        while true {
            let (batch, waiters) = outbox.withLock { outbox in
                let batch = outbox.tasks.take(lane, atMost: limit)
                guard outbox.tasks.isIdle else { return (batch, [@Sendable () -> Void]()) }
                defer { outbox.waiters = [] }
                return (batch, outbox.waiters)
            }
            for waiter in waiters { waiter() }
            if batch.isEmpty { return }
            var mayGoOn = true
            do throws(ControlError) {
                try create(batch)
                try change(batch)
            } catch {
                mayGoOn = false
            }
            let again = outbox.withLock { outbox in
                if !mayGoOn { outbox.tasks.drop() }
                return outbox.tasks.finish(batch)
            }
            if mayGoOn {
                tell(again)
            } else {
                // A task that was cancelled meanwhile, and that the daemon never had, ends here.
                for task in batch { task.session.endIfUnknown(task) }
                // Everything else is told over the next connection.
                connection.reconnect()
            }
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
        guard changes.count > 1 else {
            for (task, change) in changes { try send(change, of: task) }
            return
        }
        do throws(ControlError) {
            let refusals = try client.changeTasks(changes.map(\.change))
            for (task, change) in changes {
                task.record.withLock { $0.wasTold() }
                if let refusal = refusals[change.task] { takeRefusal(refusal, of: task) }
            }
        } catch .refused(let refusal)
            where [.notFound, .tooLarge].contains(refusal.code)
        {
            // A daemon of an earlier version takes them one by one.
            for index in changes.indices {
                do throws(ControlError) {
                    try send(changes[index].change, of: changes[index].task)
                } catch {
                    for (task, change) in changes[(index + 1)...] {
                        task.record.withLock { $0.wasNotTold(change.change) }
                    }
                    throw error
                }
            }
        } catch {
            for (task, change) in changes { task.record.withLock { $0.wasNotTold(change.change) } }
            throw error
        }
    }

    private func send(_ change: TaskChange, of task: URLSessionTask) throws(ControlError) {
        do throws(ControlError) {
            let answer = try client.change(change.task, change.change)
            task.record.withLock { record in
                record.wasTold()
                record.update(answer)
            }
        } catch {
            guard case .refused(let refusal) = error, refusal.code != .unavailable else {
                task.record.withLock { $0.wasNotTold(change.change) }
                throw error
            }
            takeRefusal(refusal, of: task)
        }
    }

    private func takeRefusal(_ refusal: ControlRefusal, of task: URLSessionTask) {
        task.record.withLock { $0.wasTold() }
        // A task that has ended cannot be changed, and its end is on its way.
        if refusal.code != .conflict { task.session.takeRefusal(of: task, .refused(refusal)) }
    }
}

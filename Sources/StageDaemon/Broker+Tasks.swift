import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import SystemPackage

extension Broker {
    /// Makes tasks, all or none, and returns their numbers once they are on disk.
    func create(
        _ message: NewTasks,
        in identifier: String,
        _ caller: Caller
    ) async throws(ControlRefusal) -> CreatedTasks {
        try RequestLimits.check(message)
        let session = try state.session(identifier, caller)
        let (id, user) = (session.record.id, session.record.user)
        let byteLimit = storage.limit(of: user).map { ByteCount($0) }
        try state.checkQuota(of: message.tasks, in: id, byteLimit: byteLimit)
        try await preparation.checkConfinement(of: caller, message.tasks)
        let mustCheckHandler = try state.checkStagings(
            message.tasks,
            in: session,
            caller,
            hasWorkers: hasWorkers
        )
        if mustCheckHandler { try await checkHandler(caller) }
        if message.tasks.contains(where: { $0.kind == .staging }) {
            await takeOver(for: session)
        }
        let known = try await preparation.knownTokens(message.tasks, id)
        guard let record = state.sessions[id]?.record else { throw ControlRefusal.sessionEnds }
        var (tasks, reason) = try state.newTasks(
            message,
            in: record,
            fractions: message.tasks.map { _ in .random(in: 0...1) },
            at: .now
        )
        do throws(ControlRefusal) {
            // The file of a request that is repeated may be gone, and its resume token is used up.
            for index in tasks.indices where !known.contains(Array(tasks[index].request.token.utf8))
            {
                try await preparation.prepare(&tasks[index], caller, user)
            }
            try state.reserve(message.tasks, in: id)
        } catch {
            removeFiles(tasks.compactMap(\.copy))
            throw error
        }
        return try await insert(tasks, id, by: caller.user, reason)
    }

    private func insert(
        _ tasks: [NewTask],
        _ session: Int64,
        by creator: UInt32,
        _ reason: HoldReason?
    ) async throws(ControlRefusal) -> CreatedTasks {
        let now = Date.now
        let created: [(record: TaskRecord, isNew: Bool)]
        do throws(DaemonError) {
            created = try await journal.create(
                tasks,
                in: session,
                by: creator,
                created: now,
                limit: state.configuration.journalPerUser.rawValue
            )
        } catch {
            state.endReservation(of: tasks.count, in: session)
            removeFiles(tasks.compactMap(\.copy))
            await considerLaunch(session)
            await removeIfOver(session)
            throw ControlRefusal(error)
        }
        let pairs = zip(created, tasks)
        state.created(
            pairs.map { ($0.record, $0.isNew, $1.request) },
            in: session,
            reason,
            at: now
        )
        removeFiles(pairs.filter { !$0.isNew && $1.copy != $0.record.part }.compactMap(\.1.copy))
        guard state.sessions[session] != nil else { throw .sessionEnds }
        if !created.contains(where: \.isNew) {
            // While the tasks were reserved, others may have ended, and nothing followed from that.
            await considerLaunch(session)
            await removeIfOver(session)
        }
        turn()
        for (record, isNew) in created where isNew { tellHolds(of: record.id) }
        return CreatedTasks(created.map(\.record.id))
    }

    /// A task that the caller may use.
    func find(_ id: Int64, _ caller: Caller) async throws(ControlRefusal) -> FullTask {
        let task: FullTask?
        do throws(DaemonError) {
            task = try await journal.task(id)
        } catch {
            throw ControlRefusal(.storage, "\(error)")
        }
        guard let task, let session = state.sessions[task.record.session],
            caller.mayUse(session.record)
        else { throw ControlRefusal(.notFound, "there is no task \(id)") }
        return task
    }

    /// A task as clients see it.
    func task(_ id: Int64, _ caller: Caller) async throws(ControlRefusal) -> TransferTask {
        describe(try await find(id, caller), for: caller)
    }

    func describe(_ task: FullTask, for caller: Caller) -> TransferTask {
        let now = Date.now
        let attempt = live[task.record.id]?.current.report(ended: now)
        var answer = state.describe(task, attempt, at: now)
        if caller.readsHeaders, task.record.creator == caller.user {
            answer.request.headers = task.request.headersOfCreator
        }
        return answer
    }

    /// Changes a task, and returns it as it is then.
    func change(
        _ id: Int64,
        _ change: TransferChange,
        _ caller: Caller
    ) async throws(ControlRefusal) -> TransferTask {
        // A caller who may not use the task delays no change of it.
        _ = try await find(id, caller)
        await beginChange(of: id)
        defer { endChange(of: id) }
        let task = try await find(id, caller)
        if change.stagingBytes != nil { return try note(change, of: task, caller) }
        switch try state.begin(change, of: task, at: .now) {
        case .none: return describe(task, for: caller)
        case .cancel: return try await cancel(task, change.producesResumeToken ?? false, caller)
        case .endStaging(let end):
            await halt(id)
            await follow(state.judge(end, of: task, at: .now), for: task)
        case .write(let task):
            do throws(DaemonError) {
                let limit = state.configuration.journalPerUser.rawValue
                try await journal.update(task, limit: limit)
            } catch {
                throw ControlRefusal(error)
            }
            if state.changed(task, by: change, at: .now) {
                await halt(id)
                await endUnanswered(task)
            }
            turn()
        }
        return try await self.task(id, caller)
    }

    /// Changes tasks of a session, each by itself, and returns which changes were refused once the others are on disk.
    func change(
        _ message: TaskChanges,
        in identifier: String,
        _ caller: Caller
    ) async throws(ControlRefusal) -> ChangedTasks {
        try RequestLimits.check(message)
        let session = try state.session(identifier, caller).record.id
        // Some at a time: their commits share a write to the disk, and no more of them block threads.
        let refusals = await withTaskGroup(of: ChangedTasks.Refusal?.self) { group in
            var refusals: [ChangedTasks.Refusal?] = []
            for (index, item) in message.changes.enumerated() {
                if index >= Self.changesAtOnce { refusals.append(await group.next() ?? nil) }
                group.addTask { await self.refusal(of: item, in: session, caller) }
            }
            for await refusal in group { refusals.append(refusal) }
            return refusals.compactMap(\.self)
        }
        return ChangedTasks(refusals)
    }

    private static let changesAtOnce = 64

    /// Makes one of several changes; returns its refusal.
    private func refusal(
        of item: TaskChange,
        in session: Int64,
        _ caller: Caller
    ) async -> ChangedTasks.Refusal? {
        do throws(ControlRefusal) {
            guard try await find(item.task, caller).record.session == session else {
                throw ControlRefusal(.notFound, "the session has no task \(item.task)")
            }
            _ = try await change(item.task, item.change, caller)
            return nil
        } catch {
            return ChangedTasks.Refusal(item.task, error)
        }
    }

    /// Takes in the bytes that a client says it has received; nothing is written down.
    private func note(
        _ change: TransferChange,
        of task: FullTask,
        _ caller: Caller
    ) throws(ControlRefusal) -> TransferTask {
        var rest = change
        rest.stagingBytes = nil
        guard let bytes = change.stagingBytes, rest == TransferChange() else {
            throw ControlRefusal(.invalid, "'stagingBytes' changes nothing else")
        }
        try RequestLimits.check(bytes)
        let id = task.record.id
        guard state.scheduler.items[id]?.host == Scheduler.clientHost, let transfer = live[id]
        else {
            throw ControlRefusal(.conflict, "task \(id) is no staging that its client carries out")
        }
        var message = WorkerMessage()
        message.bytesReceived = bytes.received
        message.bytesExpected = bytes.expected
        transfer.take(message)
        return describe(task, for: caller)
    }

    /// Cancels a task that is out of the scheduler, and returns it as it is then.
    private func cancel(
        _ task: FullTask,
        _ keepsContent: Bool,
        _ caller: Caller
    ) async throws(ControlRefusal) -> TransferTask {
        var answer = describe(task, for: caller)
        let id = task.record.id
        await stop(id)
        let remnant = keepsContent ? remnant(of: task) : nil
        let event = state.cancellation(of: task, token: remnant?.token, at: .now)
        let deletion = await deletion(of: task)
        await conclude(
            [(id, event)],
            leaving: remnant,
            removing: remnant == nil ? task.record.part : nil
        )
        begin(deletion)
        // A transient session is gone with its last task.
        guard state.sessions[task.record.session] == nil else {
            return try await self.task(id, caller)
        }
        (answer.state, answer.holds) = (.cancelled, [])
        return answer
    }
}

/// Lists of tasks.
extension Broker {
    /// Begins a list of the tasks of one session, or of all that the caller sees.
    func listing(
        of identifier: String?,
        _ caller: Caller
    ) throws(ControlRefusal) -> TaskListing {
        if let identifier {
            let session = try state.session(identifier, caller).record.id
            return TaskListing(caller: caller, sessions: [session])
        }
        return TaskListing(
            caller: caller,
            sessions: state.sessions(caller).map(\.record.id)[...]
        )
    }

    /// The next tasks of a list, and what is left of it; `nil` if nothing is.
    func page(
        of listing: TaskListing
    ) async throws(ControlRefusal) -> ([TransferTask], rest: TaskListing?) {
        var listing = listing
        while let session = listing.sessions.first {
            let tasks: [FullTask]
            let isLast: Bool
            do throws(DaemonError) {
                (tasks, isLast) = try await journal.tasks(of: session, after: listing.last)
            } catch {
                throw ControlRefusal(.storage, "\(error)")
            }
            listing.last = tasks.last?.record.id ?? 0
            if isLast {
                listing.sessions.removeFirst()
                listing.last = 0
            }
            guard tasks.isEmpty else {
                let described = tasks.map { describe($0, for: listing.caller) }
                return (described, listing.sessions.isEmpty ? nil : listing)
            }
        }
        return ([], nil)
    }
}

extension TransferRequest {
    /// The header fields that the task was created with, without the value of one that answers a challenge.
    fileprivate var headersOfCreator: [String: String]? {
        guard hasChallengeCredential == true, let headers else { return headers }
        return Dictionary(
            uniqueKeysWithValues: headers.map { name, value in
                (name, name.lowercased() == "authorization" ? TransferTask.hiddenValue : value)
            }
        )
    }
}

/// The part of a list of tasks that was not sent yet.
struct TaskListing: Sendable {
    /// The client that is told.
    fileprivate let caller: Caller
    /// The sessions that are left, the one that is being told first.
    fileprivate var sessions: ArraySlice<Int64>
    /// The last task that was told.
    fileprivate var last: Int64 = 0
}

extension NewTask {
    /// The name of the copy of the file that it uploads.
    fileprivate var copy: String? { request.kind == .upload ? part : nil }
}

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
        let session = try self.session(identifier, caller)
        let user = session.record.user
        guard !session.isEnding else {
            throw ControlRefusal.sessionEnds
        }
        try checkQuota(message.tasks, user)
        try await checkConfinement(of: caller, message.tasks)
        try await checkStagings(message.tasks, in: session, caller)
        if message.tasks.contains(where: { $0.kind == .staging }) {
            await takeOver(for: session)
        }
        var tasks: [NewTask] = []
        var snapshots: [String] = []
        let now = Date.now
        var (penalty, reason): (Date?, HoldReason?) = (nil, nil)
        if let token = message.launch, token == session.record.relaunch.lease {
            penalty = session.record.relaunch.earliestBegin(at: now)
        }
        let known = try await knownTokens(message.tasks, session.record.id)
        do throws(ControlRefusal) {
            for request in message.tasks {
                let request = withConfiguredConditions(request)
                var task = try NewTask(request, session.record.configuration, at: now)
                if let penalty, penalty > task.earliest ?? .distantPast {
                    task.earliest = penalty
                    reason = .penalty
                }
                if session.record.configuration.isDiscretionary {
                    let slot = now + .random(in: 0...max(configuration.discretionaryWindow, 0))
                    task.earliest = max(task.earliest ?? slot, slot)
                }
                // The file of a request that is repeated may be gone, and its resume token is used up.
                if !known.contains(request.token) { try await prepare(&task, caller, user) }
                if task.request.kind == .upload, let name = task.part { snapshots.append(name) }
                tasks.append(task)
            }
        } catch {
            removeFiles(snapshots)
            throw error
        }
        return try await insert(tasks, session.record.id, by: caller.user, reason)
    }

    /// The tokens among those of requests that need something prepared which the session has already.
    private func knownTokens(
        _ requests: [TransferRequest],
        _ session: Int64
    ) async throws(ControlRefusal) -> Set<String> {
        let tokens = requests.filter { $0.kind == .upload || $0.resumeToken != nil }.map(\.token)
        guard !tokens.isEmpty else { return [] }
        do throws(DaemonError) {
            return try await journal.known(tokens, in: session)
        } catch {
            throw ControlRefusal(.storage, "\(error)")
        }
    }

    private func insert(
        _ tasks: [NewTask],
        _ session: Int64,
        by creator: UInt32,
        _ reason: HoldReason?
    ) async throws(ControlRefusal) -> CreatedTasks {
        let now = Date.now
        let names = tasks.filter { $0.request.kind == .upload }.compactMap(\.part)
        do throws(ControlRefusal) {
            try checkCount(of: tasks, in: session)
        } catch {
            removeFiles(names)
            throw error
        }
        do throws(DaemonError) {
            let created = try await journal.create(
                tasks,
                in: session,
                by: creator,
                created: now,
                limit: configuration.journalPerUser.rawValue
            )
            for ((record, isNew), task) in zip(created, tasks) {
                guard isNew else {
                    if task.request.kind == .upload, let name = task.part, name != record.part {
                        removeFiles([name])
                    }
                    continue
                }
                var record = record
                sessions[session]?.unfinished += 1
                join(record.id, task.request, &record)
                admit(record, at: now, reason: reason)
                handOver(task.request, session)
                // Whoever asks for the content now does not wait for what failed before.
                endWait(of: record.id, for: Self.clientReasons)
            }
            turn()
            for (record, isNew) in created where isNew { tellHolds(of: record.id, at: now) }
            return CreatedTasks(created.map(\.record.id))
        } catch {
            removeFiles(names)
            throw ControlRefusal(error)
        }
    }

    /// Checks that the client's process is not confined: the daemon asks servers, and reads files to upload,
    /// as the client's user and outside of what confines the process.
    private func checkConfinement(
        of caller: Caller,
        _ tasks: [TransferRequest]
    ) async throws(ControlRefusal) {
        let hasUploads = tasks.contains { $0.kind == .upload }
        let refusal = await withBlockingThread {
            hasUploads
                ? HandlerPolicy.restriction(of: caller)
                : HandlerPolicy.networkRestriction(of: caller)
        }
        guard let refusal else { return }
        throw ControlRefusal(
            .forbidden,
            "the client \(refusal), and the daemon does not: it transfers nothing for it"
        )
    }

    /// Takes the copy of a file to upload, or takes over what an earlier download left.
    private func prepare(
        _ task: inout NewTask,
        _ caller: Caller,
        _ user: UInt32
    ) async throws(ControlRefusal) {
        if task.request.kind == .upload {
            try await copy(&task, caller, user)
        } else if let token = task.request.resumeToken {
            let remnant: Remnant?
            do throws(DaemonError) {
                remnant = try await journal.remnant(token, of: caller.user)
            } catch {
                throw ControlRefusal(.storage, "\(error)")
            }
            guard let remnant else {
                throw ControlRefusal(.invalid, "the resume token is used up, or too old")
            }
            guard remnant.url == task.request.url else {
                throw ControlRefusal(.invalid, "the resume token is of another URL")
            }
            task.part = remnant.part
            task.remnant = token
        }
    }

    /// Takes the copy of a file to upload, which is counted before it is made; one that grows meanwhile
    /// is not copied further.
    private func copy(
        _ task: inout NewTask,
        _ caller: Caller,
        _ user: UInt32
    ) async throws(ControlRefusal) {
        let (store, path) = (store, FilePath(task.request.file ?? ""))
        let text = "upload-\(UUID().uuidString.lowercased())"
        guard let name = FilePath.Component(text) else { return }
        let size: Int64
        do throws(FileError) {
            size = try await withBlockingThread { () throws(FileError) in
                try File.open(readingRegular: path, as: caller.identity).status().size
            }
        } catch {
            throw ControlRefusal(error.isRefusedByLimit ? .unavailable : .invalid, "\(error)")
        }
        try await reserve(.part(text), size, of: user)
        do throws(FileError) {
            let count = try await withBlockingThread { () throws(FileError) in
                try store.snapshot(
                    path,
                    as: name,
                    for: caller.identity,
                    limit: ByteCount(size)
                )
            }
            task.part = text
            task.request.size = ByteCount(count)
        } catch {
            release([.part(text)])
            let passes: ControlRefusal.Code? = error.isRefusedByLimit ? .unavailable : nil
            throw ControlRefusal(error.isOutOfSpace ? .storage : passes ?? .invalid, "\(error)")
        }
    }

    private func checkQuota(_ tasks: [TransferRequest], _ user: UInt32) throws(ControlRefusal) {
        let own = sessions.values.filter { $0.record.user == user }
        let count = own.reduce(0) { sum, session in
            sum + session.unfinished + Int(session.record.last - session.record.acknowledged)
        }
        guard count + tasks.count <= configuration.tasksPerUser else {
            throw ControlRefusal(
                .quota,
                "one user may have \(configuration.tasksPerUser) tasks: \(count) are under way"
            )
        }
        // One that is too large by itself never has its turn; the others wait for theirs.
        guard let limit = storage.limit(of: user).map({ ByteCount($0) }),
            tasks.contains(where: { $0.size.map { $0 > limit } ?? false })
        else { return }
        throw ControlRefusal(.quota, "one user may have \(limit) in the daemon")
    }

    /// A task that the caller may use.
    func find(_ id: Int64, _ caller: Caller) async throws(ControlRefusal) -> FullTask {
        let task: FullTask?
        do throws(DaemonError) {
            task = try await journal.task(id)
        } catch {
            throw ControlRefusal(.storage, "\(error)")
        }
        guard let task, let session = sessions[task.record.session],
            caller.mayUse(session.record)
        else { throw ControlRefusal(.notFound, "there is no task \(id)") }
        return task
    }

    /// A task as clients see it.
    func task(_ id: Int64, _ caller: Caller) async throws(ControlRefusal) -> TransferTask {
        describe(try await find(id, caller))
    }

    func describe(_ task: FullTask) -> TransferTask {
        let (record, now) = (task.record, Date.now)
        let session = sessions[record.session]?.record
        var answer = TransferTask(
            id: record.id,
            session: session?.identifier ?? "",
            user: session?.user ?? 0,
            request: task.request,
            state: .waiting,
            created: record.created
        )
        // What a client said in confidence is for the server alone, whoever else may look.
        answer.request.headers = task.request.headers?.mapValues { _ in "(not shown)" }
        answer.request.url = TransferAddress.withoutUser(task.request.url)
        answer.request.mirrors = task.request.mirrors?.map(TransferAddress.withoutUser)
        let (state, extra) = (live[record.id]?.current, extras[record.id])
        // An attempt that has only begun has told of nothing yet.
        answer.bytesReceived = max(state?.received ?? .zero, extra?.received ?? .zero)
        answer.bytesSent = state?.sent ?? extra?.sent ?? .zero
        answer.bytesExpected = task.request.size ?? state?.total ?? extra?.total
        answer.response = state?.head ?? extra?.response
        answer.attempts = (extra?.attempts ?? 0) + (state?.attempts ?? 0)
        answer.lastProblem = state?.problem ?? extra?.problem
        if let outcome = task.outcome, record.state == .ended {
            answer.state = TransferTask.State(outcome.kind)
            answer.bytesReceived = outcome.bytesReceived ?? answer.bytesReceived
            answer.bytesSent = outcome.bytesSent ?? answer.bytesSent
            answer.bytesExpected = outcome.bytesExpected ?? answer.bytesExpected
            answer.response = outcome.response?.withoutCookies ?? answer.response
            answer.lastProblem = outcome.failure?.reason ?? answer.lastProblem
        } else if let item = scheduler.items[record.id] {
            answer.holds = holds(of: record.id, at: now)
            answer.state =
                item.blocks.contains(.client)
                ? .suspended : answer.holds.isEmpty ? .running : .waiting
        } else {
            answer.state = .running
        }
        return answer
    }

    /// Changes a task, and returns it as it is then.
    func change(
        _ id: Int64,
        _ change: TransferChange,
        _ caller: Caller
    ) async throws(ControlRefusal) -> TransferTask {
        var task = try await find(id, caller)
        guard let item = scheduler.items[id], task.record.state == .active else {
            if change.state == .cancelled { return describe(task) }
            throw ControlRefusal(.conflict, "task \(id) has ended")
        }
        if change.stagingEnd != nil { return try await end(task, change, caller) }
        if change.state == .cancelled {
            return try await cancel(task, change.producesResumeToken ?? false, caller)
        }
        let waits = item.blocks.contains(.authentication)
        guard waits || change.rejectsChallenge != true && change.authorization == nil else {
            throw ControlRefusal(.conflict, "nobody asked who asks for task \(id)")
        }
        task.record.blocks = item.blocks
        task.record.blocks.remove(.leader)
        let answers = try task.apply(change, at: .now)
        try checkLimits(task)
        if answers {
            sessions[task.record.session]?.isChallenged = scheduler.items.contains { other, item in
                other != id && item.session == task.record.session
                    && item.blocks.contains(.authentication)
            }
        }
        do throws(DaemonError) {
            try await journal.update(task, limit: self.configuration.journalPerUser.rawValue)
        } catch {
            throw ControlRefusal(error)
        }
        let (record, before) = (task.record, item.blocks)
        scheduler.change(id, at: .now) { item in
            // Only what was changed: other things have happened while it was written down.
            item.blocks.formUnion(record.blocks.subtracting(before))
            item.blocks.subtract(before.subtracting(record.blocks).subtracting(.leader))
            item.priority = record.priority
            item.needs = record.needs
            if change.promotes == true {
                item.notBefore = nil
            } else if change.earliestBegin != nil {
                item.notBefore = record.earliest.map { Hold(.earliestBegin, until: $0) }
            }
        }
        endWait(of: id, by: change)
        handOver(task.request, record.session)
        if change.rejectsChallenge == true, task.request.ignoresChallenges != true,
            scheduler.items[id] != nil
        {
            scheduler.remove(id)
            await halt(id)
            await endUnanswered(task)
        }
        turn()
        return try await self.task(id, caller)
    }

    /// Checks a task that was changed; of one that is lost there is nothing to check, it fails when it runs.
    private func checkLimits(_ task: FullTask) throws(ControlRefusal) {
        guard !task.isLost, let session = sessions[task.record.session] else { return }
        try RequestLimits.check(task.request, in: session.record.configuration)
    }
}

extension TransferTask.State {
    /// The state that an event tells of.
    init(_ kind: SessionEvent.Kind) {
        self =
            switch kind {
            case .completed: .completed
            case .cancelled: .cancelled
            default: .failed
            }
    }
}

extension FullTask {
    /// Changes what a client may change, and returns whether a challenge is answered by it.
    mutating func apply(_ change: TransferChange, at now: Date) throws(ControlRefusal) -> Bool {
        switch change.state {
        case .running: record.blocks.remove(.client)
        case .suspended: record.blocks.insert(.client)
        case .paused: record.blocks.insert(.user)
        case .unpaused: record.blocks.remove(.user)
        case .cancelled, nil: break
        }
        if let priority = change.priority {
            request.priority = priority
            record.priority = try NewTask.priority(priority)
        }
        if let earliest = change.earliestBegin {
            request.earliestBegin = earliest
            record.earliest = earliest
        }
        if change.promotes == true {
            record.needs = []
            record.earliest = nil
            record.priority = NewTask.highestPriority
        }
        request.description = change.description ?? request.description
        request.expectedToReceive = change.expectedToReceive ?? request.expectedToReceive
        request.expectedToSend = change.expectedToSend ?? request.expectedToSend
        guard let authorization = change.authorization else {
            if change.rejectsChallenge == true, request.takesRejectedChallenge {
                // The server is asked once more, and its answer is the content.
                request.ignoresChallenges = true
                record.blocks.remove(.authentication)
            }
            return change.rejectsChallenge ?? false
        }
        try RequestLimits.check(header: "Authorization", authorization)
        var headers = request.headers ?? [:]
        headers = headers.filter { $0.key.lowercased() != "authorization" }
        headers["Authorization"] = authorization
        request.headers = headers
        record.blocks.remove(.authentication)
        return true
    }
}

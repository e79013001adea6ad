import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageSystem
import SystemPackage

extension TransferCoordinator {
    /// Returns a task that the client may use.
    func find(_ id: Int64, for client: ClientCredentials) async throws(ControlRefusal) -> FullTask {
        let task: FullTask?
        do throws(DaemonError) {
            task = try await journal.task(id)
        } catch {
            throw ControlRefusal(.storage, message: "\(error)")
        }
        guard let task, let session = state.sessions[task.record.session],
            client.mayUse(session.record)
        else { throw ControlRefusal(.notFound, message: "there is no task \(id)") }
        return task
    }

    /// Returns a task as clients see it.
    func task(
        _ id: Int64,
        for client: ClientCredentials
    ) async throws(ControlRefusal) -> TransferTask {
        describe(try await find(id, for: client), for: client)
    }

    func describe(_ task: FullTask, for client: ClientCredentials) -> TransferTask {
        let now = readClock()
        let attempt = live[task.record.id]?.current.report(ended: now)
        var answer = state.describe(task, attempt: attempt, at: now)
        if unscheduled.contains(task.record.id), task.record.state != .ended {
            (answer.state, answer.pendingReasons) = (
                .waiting, [PendingReason(.disk, until: retryDate)]
            )
        }
        if client.readsHeaders, task.record.creator == client.user {
            answer.request.headers = task.request.headersOfCreator
        }
        return answer
    }

    /// Changes a task, and returns its new state.
    func change(
        _ id: Int64,
        by change: TransferChange,
        for client: ClientCredentials
    ) async throws(ControlRefusal) -> TransferTask {
        // A client without access to the task must not delay its changes.
        _ = try await find(id, for: client)
        await beginChange(of: .task(id))
        defer { endChange(of: .task(id)) }
        await synchronizeClock()
        await rescheduleIfUnread(id)
        // A download whose content cannot be committed waits, and can be cancelled.
        if change.state == .cancelled, state.committing.contains(id) { await abort(id) }
        let task = try await find(id, for: client)
        guard !unscheduled.contains(id) else {
            throw ControlRefusal(
                .storage,
                message: "task \(id) could not be read: repeat the request later"
            )
        }
        // The journal may delete a task that is being replaced next, and the change with it.
        guard !state.isReplaced(task.record.session) else { throw .sessionEnds }
        if change.stagingBytes != nil { return try note(change, of: task, for: client) }
        switch try state.begin(change, of: task, at: readClock()) {
        case .none: return describe(task, for: client)
        case .cancel:
            return try await cancel(
                task,
                keepsContent: change.producesResumeToken ?? false,
                for: client
            )
        case .endStaging(let end):
            await abort(id)
            await follow(state.judge(end, of: task, at: readClock()), for: task)
        case .write(let task):
            let reserved = state.reserveWithoutRetry(for: change, of: task)
            do throws(DaemonError) {
                defer { state.sessions[task.record.session]?.reservedWithoutRetry -= reserved }
                let limit = state.configuration.journalPerUser.rawValue
                try await journal.update(task, limit: limit)
            } catch {
                throw ControlRefusal(error)
            }
            if state.changed(task, by: change, at: readClock()) {
                await abort(id)
                await endUnanswered(task)
            }
            runScheduler()
            // If an attempt is being stopped, its end sends the reasons.
            if live[id] == nil { sendPendingReasons(of: id) }
        }
        return try await self.task(id, for: client)
    }

    /// Applies the update conditions of the configuration to the stagings that have not ended.
    func applyUpdateConditions() async {
        for id in state.scheduler.items.filter({ !$0.value.isConnected }).keys.sorted() {
            // The daemon is shutting down: the next start applies them to the others.
            guard !Task.isCancelled else { return }
            await applyOrQueueUpdateConditions(to: id)
        }
    }

    /// Records the constraints of a staging, if the configuration has changed while its record was written or could not be
    /// read.
    func recordConstraints(of record: TaskRecord) async {
        guard let item = state.scheduler.items[record.id], item.constraints != record.constraints
        else { return }
        await applyOrQueueUpdateConditions(to: record.id)
    }

    /// Does not wait for a change of the task that is in progress, which may wait for a worker that cannot be killed.
    private func applyOrQueueUpdateConditions(to id: Int64) async {
        guard isChanging(.task(id)) else { return await applyUpdateConditions(to: id) }
        Task { await applyUpdateConditions(to: id) }
    }

    private func applyUpdateConditions(to id: Int64) async {
        await beginChange(of: .task(id))
        defer { endChange(of: .task(id)) }
        do throws(DaemonError) {
            guard var task = try await journal.task(id),
                let constraints = state.changedConstraints(of: task)
            else { return }
            state.scheduler.change(id, at: readClock()) { $0.constraints = constraints }
            sendPendingReasons(of: id)
            task.record.constraints = constraints
            try await journal.update(task, limit: .max)
        } catch {
            // The next start applies them again.
            logger.warning(
                "The conditions of a staging were not recorded",
                metadata: ["error": "\(error)"]
            )
        }
    }

    /// Changes several tasks of a session independently; returns the refusals once all other changes are on disk.
    func change(
        _ message: TaskChanges,
        in identifier: String,
        for client: ClientCredentials
    ) async throws(ControlRefusal) -> ChangedTasks {
        try RequestLimits.check(message)
        let session = try state.session(identifier, for: client).record.id
        // Concurrent changes share a commit; the limit bounds the number of blocked threads.
        let refusals = await withTaskGroup(of: ChangedTasks.Refusal?.self) { group in
            var refusals: [ChangedTasks.Refusal?] = []
            for (index, item) in message.changes.enumerated() {
                if index >= Self.changesAtOnce { refusals.append(await group.next() ?? nil) }
                group.addTask { await self.refusal(of: item, in: session, for: client) }
            }
            for await refusal in group { refusals.append(refusal) }
            return refusals.compactMap(\.self)
        }
        return ChangedTasks(refusals)
    }

    private static let changesAtOnce = 64

    /// Makes one of several changes; returns its refusal, or `nil` if it succeeded.
    private func refusal(
        of item: TaskChange,
        in session: Int64,
        for client: ClientCredentials
    ) async -> ChangedTasks.Refusal? {
        do throws(ControlRefusal) {
            guard try await find(item.task, for: client).record.session == session else {
                throw ControlRefusal(.notFound, message: "the session has no task \(item.task)")
            }
            _ = try await change(item.task, by: item.change, for: client)
            return nil
        } catch {
            return ChangedTasks.Refusal(item.task, refusal: error)
        }
    }

    /// Updates the received bytes that a staging client reports; they are kept in memory only.
    private func note(
        _ change: TransferChange,
        of task: FullTask,
        for client: ClientCredentials
    ) throws(ControlRefusal) -> TransferTask {
        var rest = change
        rest.stagingBytes = nil
        guard let bytes = change.stagingBytes, rest == TransferChange() else {
            throw ControlRefusal(
                .invalid,
                message: "'stagingBytes' cannot be combined with other changes"
            )
        }
        try RequestLimits.check(bytes)
        let id = task.record.id
        guard state.scheduler.items[id]?.host == Scheduler.clientHost, let transfer = live[id]
        else {
            throw ControlRefusal(
                .conflict,
                message: "task \(id) is not a staging that its client carries out"
            )
        }
        var message = WorkerMessage()
        message.bytesReceived = bytes.received
        message.bytesExpected = bytes.expected
        transfer.take(message)
        return describe(task, for: client)
    }

    /// Cancels a task that was removed from the scheduler, and returns its final state.
    private func cancel(
        _ task: FullTask,
        keepsContent: Bool,
        for client: ClientCredentials
    ) async throws(ControlRefusal) -> TransferTask {
        var answer = describe(task, for: client)
        let id = task.record.id
        await stopAttempt(of: id)
        let resumeData = await keepsContent ? resumeData(of: task) : nil
        let event = state.cancellation(of: task, token: resumeData?.token, at: readClock())
        let deletion = await deletion(of: task)
        // Verified content may have its new name already.
        if task.record.state == .verified,
            let user = state.sessions[task.record.session]?.record.user
        {
            await discard(RemovedTasks(tasks: [id], parts: []), of: user)
        }
        await conclude(
            [(id, event)],
            leaving: resumeData,
            removing: resumeData == nil ? task.record.part : nil
        )
        begin(deletion)
        // The end of its last task removes a transient session.
        guard state.sessions[task.record.session] == nil else {
            return try await self.task(id, for: client)
        }
        (answer.state, answer.pendingReasons) = (.cancelled, [])
        return answer
    }
}

/// Lists of tasks.
extension TransferCoordinator {
    /// Starts a list of the tasks of one session, or of all sessions visible to the client.
    func listing(
        of identifier: String?,
        named token: String?,
        for client: ClientCredentials
    ) throws(ControlRefusal) -> TaskListing {
        if let identifier {
            let session = try state.session(identifier, for: client).record.id
            return TaskListing(client: client, token: token, sessions: [session])
        }
        return TaskListing(
            client: client,
            token: token,
            sessions: state.sessions(for: client).map(\.record.id)[...]
        )
    }

    /// Returns the next page of a list, and the rest of the list or `nil` after the last page.
    func page(
        of listing: TaskListing
    ) async throws(ControlRefusal) -> ([TransferTask], rest: TaskListing?) {
        var listing = listing
        while let session = listing.sessions.first {
            let tasks: [FullTask]
            let isLast: Bool
            do throws(DaemonError) {
                (tasks, isLast) = try await journal.tasks(
                    of: session,
                    named: listing.token,
                    after: listing.last
                )
            } catch {
                throw ControlRefusal(.storage, message: "\(error)")
            }
            listing.last = tasks.last?.record.id ?? 0
            if isLast {
                listing.sessions.removeFirst()
                listing.last = 0
            }
            guard tasks.isEmpty else {
                let described = tasks.map { describe($0, for: listing.client) }
                return (described, listing.sessions.isEmpty ? nil : listing)
            }
        }
        return ([], nil)
    }
}

extension TransferRequest {
    /// Header fields that the task was created with; a credential that answered a challenge is hidden.
    fileprivate var headersOfCreator: [String: String]? {
        guard hasChallengeCredential == true, let headers else { return headers }
        return Dictionary(
            uniqueKeysWithValues: headers.map { name, value in
                (name, name.lowercased() == "authorization" ? TransferTask.hiddenValue : value)
            }
        )
    }
}

/// Rest of a task list that is sent page by page.
struct TaskListing: Sendable {
    /// Client that receives the list.
    fileprivate let client: ClientCredentials
    /// First part of the tokens of the listed tasks; `nil` to list all tasks.
    fileprivate let token: String?
    /// Remaining sessions; the first one is being listed.
    fileprivate var sessions: ArraySlice<Int64>
    /// Identifier of the last task that was listed.
    fileprivate var last: Int64 = 0
}

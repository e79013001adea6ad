import FoundationEssentials
import StageControl
import StageModel

/// Creation of tasks.
extension TransferCoordinator {
    /// Creates tasks, all or none, and returns their identifiers once they are on disk.
    func create(
        _ message: NewTasks,
        in identifier: String,
        for client: ClientCredentials
    ) async throws(ControlRefusal) -> CreatedTasks {
        try RequestLimits.check(message)
        let session = try state.session(identifier, for: client)
        let id = session.record.id
        let byteLimit = storage.limit(of: session.record.user).map { ByteCount($0) }
        try state.checkQuota(of: message.tasks, in: id, byteLimit: byteLimit)
        try await preparation.checkConfinement(of: client, creating: message.tasks)
        let mustCheckHandler = try state.checkStagings(
            message.tasks,
            in: session,
            for: client,
            hasWorkers: hasWorkers
        )
        if mustCheckHandler { try await checkHandler(for: client) }
        let subject = try await beginCreation(of: message.tasks, in: session.record)
        defer { if let subject { endChange(of: subject) } }
        do throws(ControlRefusal) {
            return try await createNext(message, in: session, for: client)
        } catch {
            if state.sessions[id]?.wasOverDuringCreation ?? false { await removeIfOver(id) }
            throw error
        }
    }

    /// Creates tasks once earlier stagings of the same job were recorded or refused.
    private func createNext(
        _ message: NewTasks,
        in session: TransferState.Session,
        for client: ClientCredentials
    ) async throws(ControlRefusal) -> CreatedTasks {
        let (id, user) = (session.record.id, session.record.user)
        await synchronizeClock()
        let known = try await preparation.knownTokens(of: message.tasks, in: id)
        guard let record = state.sessions[id]?.record else { throw ControlRefusal.sessionEnds }
        var (tasks, reason) = try state.newTasks(
            message,
            in: record,
            fractions: message.tasks.map { _ in .random(in: 0...1) },
            at: readClock()
        )
        do throws(ControlRefusal) {
            // A repeated request has a used-up resume token, and its file may be gone.
            for index in tasks.indices where !known.contains(Array(tasks[index].request.token.utf8))
            {
                try await preparation.prepare(&tasks[index], for: client, of: user)
            }
            try state.reserve(message.tasks, in: id)
        } catch {
            await removeFiles(tasks.compactMap(\.copy))
            throw error
        }
        var replaced: [Int64] = []
        if message.tasks.contains(where: { $0.kind == .staging }) {
            let isPaused = state.replacesPaused(session)
            tasks = tasks.map { state.keepingPause($0, isPaused: isPaused) }
            replaced = state.beginReplacement(by: session)
        }
        return try await insert(
            tasks,
            in: id,
            by: client.user,
            reason: reason,
            replacing: replaced
        )
    }

    /// Waits until the journal has recorded or refused earlier stagings of the same job; returns the change, which the caller
    /// ends.
    private func beginCreation(
        of tasks: [TransferRequest],
        in session: SessionRecord
    ) async throws(ControlRefusal) -> ChangeSubject? {
        guard tasks.contains(where: { $0.kind == .staging }), let key = session.jobKey else {
            return nil
        }
        // The session is not removed meanwhile, also if its earlier tasks are refused.
        try state.reserve(tasks, in: session.id)
        await beginChange(of: .stagingJob(key))
        state.endReservation(of: tasks, in: session.id)
        return .stagingJob(key)
    }

    /// Writes tasks to the journal, in place of the stagings of the `replaced` sessions, and schedules them.
    ///
    /// Does not wait until the replaced stagings have stopped: the client may rely on its tasks as soon as they are on disk.
    private func insert(
        _ tasks: [NewTask],
        in session: Int64,
        by creator: UInt32,
        reason: PendingReason.Kind?,
        replacing replaced: [Int64]
    ) async throws(ControlRefusal) -> CreatedTasks {
        let now = readClock()
        // Also sessions that are being removed: nothing of them returns if that fails.
        let isStaging = tasks.contains { $0.request.kind == .staging }
        let predecessors = isStaging ? state.predecessors(of: session) : []
        let created: [(record: TaskRecord, isNew: Bool)]
        var replaced = replaced
        do throws(DaemonError) {
            let result = try await journal.create(
                tasks,
                in: session,
                by: creator,
                created: now,
                limit: state.configuration.journalPerUser.rawValue,
                replacing: predecessors
            )
            created = result.tasks
            replaced += state.replaced(result.replaced, by: session)
        } catch {
            state.endReservation(of: tasks.map(\.request), in: session)
            await removeFiles(tasks.compactMap(\.copy))
            await keepReplaced(replaced)
            await launchIfNeeded(session)
            await removeIfOver(session)
            throw ControlRefusal(error)
        }
        // In a task of its own: a user's worker may be slow to end.
        if !replaced.isEmpty { Task { [replaced] in await removeReplaced(replaced) } }
        let pairs = zip(created, tasks)
        state.created(
            pairs.map { ($0.record, $0.isNew, $1.request) },
            in: session,
            reason: reason,
            at: readClock()
        )
        for (entry, task) in pairs where entry.isNew && task.usedResumeToken != nil {
            await noteResumedBytes(of: entry.record, hasDigest: task.request.sha256 != nil)
        }
        let unneeded = pairs.filter { !$0.isNew && $1.copy != $0.record.part }
        await removeFiles(unneeded.compactMap(\.1.copy))
        guard state.sessions[session] != nil else { throw .sessionEnds }
        if !created.contains(where: \.isNew) {
            // The reservation counted as unfinished tasks: if other tasks ended meanwhile, the session's handler was not
            // launched and a transient session was not removed.
            await launchIfNeeded(session)
            await removeIfOver(session)
        }
        runScheduler()
        for (record, isNew) in created where isNew {
            sendPendingReasons(of: record.id)
            await recordConstraints(of: record)
        }
        return CreatedTasks(created.map(\.record.id))
    }
}

extension NewTask {
    /// Name of the copy of the file to upload.
    fileprivate var copy: String? { request.kind == .upload ? part : nil }
}

import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageSystem

extension TransferCoordinator {
    /// Restores the state that an earlier run of the daemon left in the journal.
    ///
    /// Commits verified downloads, schedules unfinished tasks, and removes files that belong to no task. Only read
    /// errors prevent the start: on a full disk, steps that cannot be written are left to the next start.
    ///
    /// - Parameter lastChange: The date of the journal's last change by the earlier run; `nil` if there was none.
    /// - Returns: The argument for ``removeUnknownDownloads(besides:)``.
    /// - Throws: ``DaemonError`` if the journal cannot be read.
    func recover(
        lastChange: Date?
    ) async throws(DaemonError) -> (tasks: Set<Int64>, last: Int64) {
        await attempt { () throws(DaemonError) in
            try await self.adjustDates(lastChange: lastChange)
        }
        for record in await resolvingGroups(of: try await journal.sessions()) {
            var session = TransferState.Session(record: record)
            if record.launchLimiter.activeToken != nil {
                // The daemon did not see the handler end: the launch counts as failed.
                session.record.launchLimiter.failInterruptedLaunch()
                let launchLimiter = session.record.launchLimiter
                await attempt { () throws(DaemonError) in
                    try await self.journal.update(launchLimiter, of: record.id)
                }
            }
            state.sessions[record.id] = session
        }
        let now = readClock()
        var verified: [TaskRecord] = []
        var unanswered: [TaskRecord] = []
        for record in try await journal.unfinishedTasks() {
            state.sessions[record.session]?.unfinished += 1
            guard record.state == .active else {
                verified.append(record)
                continue
            }
            guard !record.hasProvisionalEnd else {
                unanswered.append(record)
                continue
            }
            state.schedule(record, at: now)
        }
        await applyUpdateConditions()
        for record in verified { await commitVerified(record) }
        for record in unanswered { try await failUnansweredUpload(of: record.id) }
        for id in state.sessions.keys.sorted() { await removeIfOver(id) }
        let files = files
        let known = try await journal.taskNumbers()
        await attempt { () throws(DaemonError) in
            _ = try await self.journal.removeExpiredResumeData(before: now)
        }
        let names = try await journal.filesInUse()
        logLeftovers(await withBlockingThread { files.removeUnknownFiles(keeping: names) })
        return known
    }

    private func resolvingGroups(of records: [SessionRecord]) async -> [SessionRecord] {
        await withBlockingThread {
            records.map { record in
                var record = record
                record.resolveGroup()
                return record
            }
        }
    }

    /// Fails an upload that an earlier run of the daemon sent completely without seeing the response.
    private func failUnansweredUpload(of id: Int64) async throws(DaemonError) {
        guard let task = try await journal.task(id) else { return }
        await fail(task, with: .lostResponse)
    }

    /// Runs a step that the start can do without; logs its error.
    private func attempt(_ body: () async throws(DaemonError) -> Void) async {
        do throws(DaemonError) {
            try await body()
        } catch {
            logger.error("A step of the start failed", metadata: ["error": "\(error)"])
        }
    }

    /// Removes finished downloads that belong to no task from the users' directories.
    ///
    /// Users control how many files there are and so how long this takes; nothing waits for it.
    nonisolated func removeUnknownDownloads(besides known: (tasks: Set<Int64>, last: Int64)) async {
        let files = files
        logLeftovers(
            await withBlockingThread {
                files.removeUnknownDownloads(keeping: known.tasks, upTo: known.last)
            }
        )
    }

    private nonisolated func logLeftovers(_ errors: [FileError]) {
        for error in errors {
            logger.warning("A file could not be removed", metadata: error.metadata)
        }
    }

    /// Commits a task whose content was verified before the daemon stopped.
    ///
    /// If that fails, the task waits and its commit is repeated: one user's broken directory does not prevent the
    /// daemon from starting. Until then no attempt may write to the part file, since the journal calls its content
    /// verified.
    func commitVerified(_ record: TaskRecord) async {
        // The removal of the session waits for the end of the commit.
        state.committing.insert(record.id)
        defer { endCommit(of: record.id) }
        do throws(DaemonError) {
            try await commit(record)
        } catch {
            logger.error("A download could not be committed", metadata: error.metadata)
            await reschedule(record.id, after: error)
        }
    }

    /// Moves the file of a verified download into the user's directory, then records the end.
    ///
    /// Downloads the content again if the file is missing.
    private func commit(_ record: TaskRecord) async throws(DaemonError) {
        guard let session = state.sessions[record.session],
            let task = try await journal.task(record.id)
        else { return state.forget(record.id, at: readClock()) }
        guard let event = task.outcome else { return await fail(task, with: FullTask.damaged) }
        let isMoved: Bool
        let (files, user) = (files, session.record.user)
        do throws(FileError) {
            // On a blocking thread: the move waits for the disk.
            isMoved = try await withBlockingThread { () throws(FileError) in
                try files.finishMove(record, size: event.bytesReceived ?? .zero, of: user)
            }
        } catch {
            throw .file(error)
        }
        guard state.sessions[record.session] != nil else {
            return state.forget(record.id, at: readClock())
        }
        guard isMoved else {
            try await journal.reopen(record.id)
            state.schedule(record, at: readClock())
            return
        }
        storage.move(.part(record.part), to: .finished(record.id))
        endCommit(of: record.id)
        await conclude([(record.id, event)])
    }
}

/// Tasks that return to the scheduler.
extension TransferCoordinator {
    /// Retries reading the tasks that could not be read from the journal, and hands them to the scheduler.
    ///
    /// Leaves out tasks that are being changed, which may take long: a change that begins hands its task to the scheduler
    /// itself (``rescheduleIfUnread(_:)``).
    func rescheduleAll() async {
        for id in unscheduled.sorted() where !isChanging(.task(id)) {
            await beginChange(of: .task(id))
            await rescheduleIfUnread(id)
            endChange(of: .task(id))
        }
    }

    /// Hands a task that is being changed to the scheduler if it could not be read from the journal before.
    func rescheduleIfUnread(_ id: Int64) async {
        if unscheduled.remove(id) != nil { await reschedule(id) }
    }

    /// Hands a task back to the scheduler, after an error if its content could not be committed or copied.
    ///
    /// For verified content, only the commit is repeated.
    func reschedule(_ id: Int64, after error: DaemonError? = nil) async {
        await synchronizeClock()
        do throws(DaemonError) {
            guard let task = try await journal.task(id), task.record.state != .ended else {
                return state.forget(id, at: readClock())
            }
            guard !task.record.hasProvisionalEnd else {
                return await fail(task, with: .lostResponse)
            }
            state.schedule(task.record, request: task.request, at: readClock())
            guard let error else { return await recordConstraints(of: task.record) }
            guard let failure = state.commitFailed(id, with: error, at: readClock()) else {
                return sendPendingReasons(of: id)
            }
            await fail(task, with: failure)
        } catch {
            logger.error("A task could not be read", metadata: ["error": "\(error)"])
            unscheduled.insert(id)
        }
    }
}

import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageSystem

extension Broker {
    /// Restores the state that an earlier run of the daemon left in the journal.
    ///
    /// Commits verified downloads, schedules unfinished tasks, and removes files that belong to no task. Only read
    /// errors prevent the start: on a full disk, steps that cannot be written are left to the next start.
    ///
    /// - Returns: The argument for ``sweepStaged(_:)``.
    func recover() async throws(DaemonError) -> (tasks: Set<Int64>, last: Int64) {
        for record in try await journal.sessions() {
            var session = TransferState.Session(record: record)
            if record.relaunch.lease != nil {
                // The daemon did not see the handler end: the launch counts as failed.
                session.record.relaunch.recover()
                let relaunch = session.record.relaunch
                await attempt { () throws(DaemonError) in
                    try await self.journal.update(relaunch, of: record.id)
                }
            }
            state.sessions[record.id] = session
        }
        let now = Date.now
        var verified: [TaskRecord] = []
        var unanswered: [TaskRecord] = []
        for record in try await journal.openTasks() {
            state.sessions[record.session]?.unfinished += 1
            guard record.state == .active else {
                verified.append(record)
                continue
            }
            guard !record.hasProvisionalEnd else {
                unanswered.append(record)
                continue
            }
            state.admit(record, at: now)
        }
        for record in verified { await complete(record) }
        for record in unanswered { try await giveUpAnswer(of: record.id) }
        for id in state.sessions.keys.sorted() { await removeIfOver(id) }
        let store = store
        let known = try await journal.taskNumbers()
        await attempt { () throws(DaemonError) in
            _ = try await self.journal.removeExpiredRemnants(before: now)
        }
        let names = try await journal.filesInUse()
        tellLeftOver(await withBlockingThread { store.sweep(keeping: names) })
        return known
    }

    /// Fails an upload that an earlier run of the daemon sent completely without seeing the response.
    private func giveUpAnswer(of id: Int64) async throws(DaemonError) {
        guard let task = try await journal.task(id) else { return }
        await fail(task, .lostAnswer)
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
    nonisolated func sweepStaged(_ known: (tasks: Set<Int64>, last: Int64)) async {
        let store = store
        tellLeftOver(
            await withBlockingThread { store.sweepStaged(keeping: known.tasks, upTo: known.last) }
        )
    }

    private nonisolated func tellLeftOver(_ errors: [FileError]) {
        for error in errors {
            logger.warning("A file could not be removed", metadata: ["error": "\(error)"])
        }
    }

    /// Commits a task whose content was verified before the daemon stopped.
    ///
    /// If that fails, the task waits for the disk and is retried: one user's broken directory does not prevent the
    /// daemon from starting. Until then no attempt may write to the part file, since the journal calls its content
    /// verified.
    func complete(_ record: TaskRecord) async {
        defer { endPlacing(of: record.id) }
        do throws(DaemonError) {
            try await place(record)
        } catch {
            logger.error("A download could not be committed", metadata: ["error": "\(error)"])
            state.admit(record, at: .now)
            state.waitForDisk(record.id, at: .now)
        }
    }

    /// Moves the file of a verified download into the user's directory, then records the end.
    ///
    /// Downloads the content again if the file is missing.
    private func place(_ record: TaskRecord) async throws(DaemonError) {
        guard let session = state.sessions[record.session],
            let task = try await journal.task(record.id)
        else { return state.forget(record.id, at: .now) }
        guard let event = task.outcome else { return await fail(task, FullTask.loss) }
        let isPlaced: Bool
        do throws(FileError) {
            isPlaced = try store.finishPlacing(
                record,
                size: event.bytesReceived ?? .zero,
                of: session.record.user
            )
        } catch {
            throw .file(error)
        }
        guard isPlaced else {
            try await journal.reopen(record.id)
            state.admit(record, at: .now)
            return
        }
        endPlacing(of: record.id)
        await conclude([(record.id, event)])
    }
}

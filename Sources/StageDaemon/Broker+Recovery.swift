import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageSystem

extension Broker {
    /// Takes up what an earlier run of the daemon left.
    ///
    /// Content that was good is given its place and said; what was under way goes on; files that
    /// belong to nothing are removed. Only what cannot be read ends the start: on a full disk, what
    /// cannot be written is taken up by the next one.
    ///
    /// - Returns: What ``sweepStaged(_:)`` is to be called with.
    func recover() async throws(DaemonError) -> (tasks: Set<Int64>, last: Int64) {
        for record in try await journal.sessions() {
            var session = TransferState.Session(record: record)
            if record.relaunch.lease != nil {
                // The handler's end was not seen: the launch counts.
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

    /// Ends an upload that an earlier daemon has sent, and that it saw no answer to.
    private func giveUpAnswer(of id: Int64) async throws(DaemonError) {
        guard let task = try await journal.task(id) else { return }
        await fail(task, .lostAnswer)
    }

    /// Does what the start can do without; an error is logged.
    private func attempt(_ body: () async throws(DaemonError) -> Void) async {
        do throws(DaemonError) {
            try await body()
        } catch {
            logger.error("The start left a step out", metadata: ["error": "\(error)"])
        }
    }

    /// Removes complete files of users that belong to no task.
    ///
    /// Takes as long as users make it take, so nothing waits for it.
    nonisolated func sweepStaged(_ known: (tasks: Set<Int64>, last: Int64)) async {
        let store = store
        tellLeftOver(
            await withBlockingThread { store.sweepStaged(keeping: known.tasks, upTo: known.last) }
        )
    }

    private nonisolated func tellLeftOver(_ errors: [FileError]) {
        for error in errors {
            logger.warning("A file is left over", metadata: ["error": "\(error)"])
        }
    }

    /// Ends a task whose content was verified before the daemon died.
    ///
    /// A task that cannot be ended now waits and is ended later: one user's trouble keeps no daemon from
    /// starting, and no attempt may write into content that the journal calls good.
    func complete(_ record: TaskRecord) async {
        defer { endPlacing(of: record.id) }
        do throws(DaemonError) {
            try await place(record)
        } catch {
            logger.error("A file could not be staged", metadata: ["error": "\(error)"])
            state.admit(record, at: .now)
            state.waitForDisk(record.id, at: .now)
        }
    }

    /// Gives the file of a task its place, and then records the end; fetches again what is not there.
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

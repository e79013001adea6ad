import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Partial files of downloads that have no attempt.
extension TransferCoordinator {
    /// Returns the resume data of a partial download that is about to end, or `nil` if a new task could not resume it.
    func resumeData(of task: FullTask) async -> ResumeData? {
        let id = task.record.id
        await beginChange(of: .partialFile(id))
        defer { endChange(of: .partialFile(id)) }
        // The removal of a session removes the file; one that begins later waits for the end of this change.
        guard task.request.kind == .download, !isChanging(.removal(task.record.session)),
            let user = state.sessions[task.record.session]?.record.user,
            let part = await partialFile(of: task.record), part.length > .zero,
            // Content of unknown size is never resumed.
            part.total != nil
        else { return nil }
        storage.set(.part(task.record.part), to: part.length.rawValue, of: user)
        return ResumeData(
            token: "r-\(UUID().uuidString.lowercased())",
            user: user,
            part: task.record.part,
            url: task.request.url,
            expires: readClock() + 7 * 86_400
        )
    }

    /// Notes the bytes of the resume data with which a download was created, so that lists show them before its first attempt.
    func noteResumedBytes(of task: TaskRecord, hasDigest: Bool) async {
        await beginChange(of: .partialFile(task.id))
        defer { endChange(of: .partialFile(task.id)) }
        // An attempt notes the bytes itself.
        guard !state.attempts.contains(task.id), !isChanging(.removal(task.session)),
            let part = await partialFile(of: task),
            // Without a validator or a digest, the download begins again at its first byte.
            part.isContinuable || hasDigest
        else { return }
        state.noteReceived(part.length, of: task.id)
    }

    /// Frees quota by looking for finished downloads that the user has moved away.
    ///
    /// If there are none, a download fails that does not wait, or whose size is unknown and that repeatedly exceeds the quota.
    func findQuota(for task: FullTask) async {
        let id = task.record.id
        guard let user = state.scheduler.items[id]?.user, !(await releaseMoved(of: user)),
            state.waitsForQuota(id)
        else { return }
        if let failure = state.takeFailureAfterQuotaSearch(of: id, at: readClock()) {
            return await fail(task, with: failure)
        }
        guard await removeEndlessFile(of: task), state.waitsForQuota(id), state.failsByQuota(id)
        else { return }
        await fail(
            task,
            with: TransferFailure(
                .storage,
                reason: "the content, whose size is unknown, exceeds the quota"
            )
        )
    }

    /// Removes the partial file of a task that waits for quota, if no attempt can resume it; returns whether it did.
    ///
    /// Such a download restarts from zero each time: its partial file is useless and counts against the quota.
    private func removeEndlessFile(of task: FullTask) async -> Bool {
        let id = task.record.id
        // An attempt that is started meanwhile does not use the file before it is removed.
        await beginChange(of: .partialFile(id))
        defer { endChange(of: .partialFile(id)) }
        guard state.waitsForQuota(id), await isEndless(task) else { return false }
        await removeFiles([task.record.part], apart: id)
        return true
    }

    /// Returns whether the partial download has no known size, so that no attempt can resume it.
    private func isEndless(_ task: FullTask) async -> Bool {
        guard let part = await partialFile(of: task.record) else { return false }
        return part.total == nil
    }

    /// Opens the partial file of a task that has no attempt; returns `nil` if that is impossible.
    ///
    /// Runs on a blocking thread, because a server determines the size of the file's record.
    private func partialFile(of task: TaskRecord) async -> PartialFile? {
        guard let name = FilePath.Component(task.part) else { return nil }
        let parts = files.parts
        // A part file that cannot be opened cannot be resumed either.
        return await withBlockingThread { try? PartialFile.open(name, in: parts) }
    }

    /// Waits until the coordinator does not use the partial file of a task.
    func waitForPartialFile(of id: Int64) async {
        guard isChanging(.partialFile(id)) else { return }
        await beginChange(of: .partialFile(id))
        endChange(of: .partialFile(id))
    }
}

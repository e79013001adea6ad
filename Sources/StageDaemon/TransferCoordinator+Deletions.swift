import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageTransfer

/// Cancelled upload whose server still has an upload resource.
struct ResourceDeletion: Sendable {
    /// Time limit of a deletion, including its time in the queue.
    static let timeout = Duration.seconds(10)

    /// The task as it was before its end was recorded.
    let task: FullTask
    /// The session.
    ///
    /// Its header fields are removed if another user created the task.
    let owner: SessionRecord
    /// Time at which the daemon gives the deletion up; the time in which the machine is suspended does not count.
    let deadline = SuspendingClock.now + timeout
}

extension TransferCoordinator {
    /// Returns the deletion for a cancelled upload, or `nil` if the server has nothing to delete.
    ///
    /// Call it after the attempt has ended and before the task's end is recorded, since recording the end removes the
    /// resource's URL.
    func deletion(of task: FullTask) async -> ResourceDeletion? {
        guard task.request.kind == .upload,
            let owner = state.sessions[task.record.session]?.record
        else { return nil }
        do throws(DaemonError) {
            guard let current = try await journal.task(task.record.id) else { return nil }
            return deletion(of: current, in: owner)
        } catch {
            logger.warning("An upload resource was not deleted", metadata: ["error": "\(error)"])
            return nil
        }
    }

    /// Returns the deletions for the unfinished uploads of a session that is about to be removed.
    func deletions(of session: SessionRecord) async -> [ResourceDeletion] {
        do throws(DaemonError) {
            return try await journal.uploads(of: session.id, limit: DeletionQueue.capacity)
                .compactMap { deletion(of: $0, in: session) }
        } catch {
            logger.warning("Upload resources were not deleted", metadata: ["error": "\(error)"])
            return []
        }
    }

    private func deletion(of task: FullTask, in session: SessionRecord) -> ResourceDeletion? {
        let isDeletable =
            if let parts = task.request.parts {
                // Parts may exist whose responses were lost.
                parts.abortURL != nil
            } else {
                task.upload?.mayBeDeleted == true
            }
        guard task.record.state == .active, isDeletable else { return nil }
        // The request is small, but it must not use a network that the task may not use.
        let constraints = task.record.constraints.subtracting(.power)
        guard constraints.unmet(in: state.scheduler.conditions).isEmpty else { return nil }
        var owner = session
        if task.record.creator != owner.user { owner.configuration.headers = [:] }
        var task = task
        // The list of parts may be long, and many deletions can be queued.
        task.request.parts?.parts = []
        return ResourceDeletion(task: task, owner: owner)
    }

    /// Queues a deletion, which runs independently of everything else.
    func begin(_ deletion: ResourceDeletion?) {
        guard let deletion else { return }
        deletionQueue.append(deletion)
        startDeletions()
    }

    /// Notes that a deletion has ended, and starts queued ones.
    func ended(_ deletion: ResourceDeletion) {
        deletionQueue.end(of: deletion.owner.user)
        startDeletions()
    }

    private func startDeletions() {
        while let deletion = deletionQueue.next() { startedDeletions.yield(deletion) }
    }
}

import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageTransfer

/// An upload that was cancelled, and whose server still has a resource for it.
struct ResourceDeletion: Sendable {
    /// The time that a deletion has, the wait for others included.
    static let timeout = Duration.seconds(10)

    /// The task as it was before its end was recorded.
    let task: FullTask
    /// The session, without header fields that are not for this task.
    let owner: SessionRecord
    /// When the deletion is given up.
    let deadline = ContinuousClock.now + timeout
}

extension Broker {
    /// The most deletions that wait; further ones are dropped.
    static let mostDeletions = 1024

    /// Returns the deletion of what the server of an upload has, `nil` if that has nothing to delete.
    ///
    /// Called once no attempt runs, and before the task's end is recorded, which removes the resource's URL.
    func deletion(of task: FullTask) async -> ResourceDeletion? {
        guard task.request.kind == .upload,
            let owner = state.sessions[task.record.session]?.record
        else { return nil }
        do throws(DaemonError) {
            guard let current = try await journal.task(task.record.id) else { return nil }
            return deletion(of: current, owner)
        } catch {
            logger.warning("An upload resource stays", metadata: ["error": "\(error)"])
            return nil
        }
    }

    /// Returns the deletions of what servers have of the uploads of a session that is about to be removed.
    func deletions(of session: SessionRecord) async -> [ResourceDeletion] {
        do throws(DaemonError) {
            return try await journal.uploads(of: session.id, limit: Self.mostDeletions)
                .compactMap { deletion(of: $0, session) }
        } catch {
            logger.warning("Upload resources stay", metadata: ["error": "\(error)"])
            return []
        }
    }

    private func deletion(of task: FullTask, _ session: SessionRecord) -> ResourceDeletion? {
        let isDeletable =
            if let parts = task.request.parts {
                // Parts may be there that no answer came for.
                parts.abortURL != nil
            } else {
                task.upload?.mayBeDeleted == true
            }
        guard task.record.state == .active, isDeletable else { return nil }
        // The request is small, but no reason to use a network that the task may not use.
        let needs = task.record.needs.subtracting(.power)
        guard needs.unmet(in: state.scheduler.conditions).isEmpty else { return nil }
        var owner = session
        if task.record.creator != owner.user { owner.configuration.headers = [:] }
        var task = task
        // They may be long, and many deletions wait.
        task.request.parts?.parts = []
        return ResourceDeletion(task: task, owner: owner)
    }

    /// Has a deletion carried out, beside everything else.
    func begin(_ deletion: ResourceDeletion?) {
        if let deletion { deletionQueue.yield(deletion) }
    }
}

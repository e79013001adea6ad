import FoundationEssentials
package import StageModel

/// The result of withdrawing a pack from the stagings that the daemon continues.
package struct PackWithdrawal: Equatable, Sendable {
    /// The numbers of the cancelled tasks.
    package var cancelled: [Int64]
    /// The error because of which other stagings of the pack may continue; `nil` if none does.
    package var problem: ControlError?

    /// Creates a result from its parts.
    package init(cancelled: [Int64] = [], problem: ControlError? = nil) {
        (self.cancelled, self.problem) = (cancelled, problem)
    }
}

/// Withdrawal of packs from stagings that earlier processes have left to the daemon.
extension ControlClient {
    /// Withdraws a pack from the stagings that the daemon continues for this user, before the pack is removed.
    ///
    /// Cancels the stagings of the pack that no process carries out, and creates a new task for the other packs of each.
    /// Does not change stagings for events, since policies select their packs.
    ///
    /// - Parameters:
    ///   - pack: The pack.
    ///   - isMeant: Returns whether a job is for the container that the pack is removed from.
    /// - Returns: The cancelled tasks, and the error if the daemon does not answer or refuses.
    package func withdraw(
        _ pack: PackID,
        where isMeant: (StagingJob) -> Bool
    ) async -> PackWithdrawal {
        var withdrawal = PackWithdrawal()
        do throws(ControlError) {
            let tasks = try await tasks().filter { task in
                guard !task.hasEnded, let job = task.request.staging, let packs = job.packs
                else { return false }
                return packs.contains(pack.text) && isMeant(job)
            }
            guard !tasks.isEmpty else { return withdrawal }
            let attended = Set(try await sessions().filter(\.isAttached).map(\.identifier))
            for task in tasks where !attended.contains(task.session) {
                if try await replaceUnlessEnded(task, without: pack) {
                    withdrawal.cancelled.append(task.id)
                }
            }
        } catch {
            withdrawal.problem = error
        }
        return withdrawal
    }

    /// Replaces a task; returns `false` if it has already ended, or been removed.
    private func replaceUnlessEnded(
        _ task: TransferTask,
        without pack: PackID
    ) async throws(ControlError) -> Bool {
        do throws(ControlError) {
            return try await replace(task, without: pack)
        } catch {
            if case .refused(let refusal) = error, refusal.code == .notFound { return false }
            throw error
        }
    }

    /// Cancels a task after ordering its other packs in a new one; returns `false` if it has already ended.
    ///
    /// The new task is created first, suspended, so that a failure does not lose its packs. Once the old task is cancelled, it
    /// waits as that did.
    private func replace(
        _ task: TransferTask,
        without pack: PackID
    ) async throws(ControlError) -> Bool {
        let rest = try await createTaskForRemainingPacks(of: task, without: pack)
        let changed: TransferTask
        do throws(ControlError) {
            changed = try await set(.cancelled, of: task.id)
        } catch {
            // The first error is the one to report.
            if let rest { _ = try? await set(.cancelled, of: rest) }
            throw error
        }
        let isCancelled = !changed.hasEnded || changed.state == .cancelled
        guard let rest else { return isCancelled }
        if isCancelled {
            let reasons = task.pendingReasons.map(\.kind)
            if reasons.contains(.pausedByUser) { _ = try await set(.paused, of: rest) }
            if !reasons.contains(.pausedByClient) { _ = try await set(.running, of: rest) }
        } else {
            _ = try await set(.cancelled, of: rest)
        }
        return isCancelled
    }

    private func set(
        _ state: TransferChange.State,
        of id: Int64
    ) async throws(ControlError) -> TransferTask {
        var change = TransferChange()
        change.state = state
        return try await self.change(id, by: change)
    }

    /// Creates a suspended task for the other packs of a task, and returns its number; `nil` if there are none.
    private func createTaskForRemainingPacks(
        of task: TransferTask,
        without pack: PackID
    ) async throws(ControlError) -> Int64? {
        let names = (task.request.staging?.packs ?? []).filter { $0 != pack.text }
        guard !names.isEmpty else { return nil }
        var request = task.request
        request.isSuspended = true
        request.staging?.packs = names
        request.setDescription(listing: names.compactMap { try? PackID($0) })
        var configuration = SessionConfiguration()
        configuration.isTransient = true
        let session = "stagepack/rest/\(UUID().uuidString.lowercased())/1"
        try await makeSession(session, configuration: configuration)
        return try await createTasks([request], in: session)[0]
    }
}

import FoundationEssentials
package import StageModel

/// Withdrawing packs from stagings that earlier processes have left to the daemon.
extension ControlClient {
    /// Has the daemon not stage a pack any more that earlier requests of this user named, because it is being removed.
    ///
    /// Cancels the stagings of the pack that no process carries out, and orders the other packs of each anew. Leaves
    /// stagings for events alone, since policies select their packs.
    ///
    /// - Parameters:
    ///   - pack: The pack.
    ///   - isMeant: Returns whether an order is for the container that the pack is removed from.
    /// - Returns: The numbers of the cancelled tasks.
    /// - Throws: ``ControlError`` if the daemon does not answer or refuses; some tasks may be cancelled then.
    @discardableResult
    package func withdraw(
        _ pack: PackID,
        where isMeant: (StagingOrder) -> Bool
    ) async throws(ControlError) -> [Int64] {
        let tasks = try await tasks().filter { task in
            guard !task.hasEnded, let order = task.request.staging, let packs = order.packs else {
                return false
            }
            return packs.contains(pack.text) && isMeant(order)
        }
        guard !tasks.isEmpty else { return [] }
        let attended = Set(try await sessions().filter(\.isAttached).map(\.identifier))
        var cancelled: [Int64] = []
        for task in tasks where !attended.contains(task.session) {
            var change = TransferChange()
            change.state = .cancelled
            let changed = try await self.change(task.id, by: change)
            // It has ended meanwhile.
            if changed.hasEnded, changed.state != .cancelled { continue }
            cancelled.append(task.id)
            try await order(task, without: pack)
        }
        return cancelled
    }

    /// Orders the other packs of a task anew.
    private func order(
        _ task: TransferTask,
        without pack: PackID
    ) async throws(ControlError) {
        let names = (task.request.staging?.packs ?? []).filter { $0 != pack.text }
        guard !names.isEmpty else { return }
        var request = task.request
        request.staging?.packs = names
        request.setDescription(listing: names.compactMap { try? PackID($0) })
        var configuration = SessionConfiguration()
        configuration.isTransient = true
        let session = "stagepack/rest/\(UUID().uuidString.lowercased())/1"
        try await makeSession(session, configuration: configuration)
        _ = try await createTasks([request], in: session)
    }
}

extension TransferTask {
    /// `true` if the task has completed, failed or been cancelled.
    package var hasEnded: Bool { [.completed, .failed, .cancelled].contains(state) }
}

public import StageModel

extension StagingHistory {
    /// Records the removal of packs; ignores packs without an entry in the history.
    ///
    /// - Parameters:
    ///   - removed: The packs.
    ///   - reason: The reason for their removal.
    ///   - now: The time, in seconds since 1970.
    public mutating func add(removed: Set<PackID>, for reason: StagingReason, at now: Int64) {
        for index in packs.indices where removed.contains(packs[index].id) {
            packs[index].outcome = .removed
            packs[index].reason = reason
            packs[index].decidedAt = now
            packs[index].failures = 0
            packs[index].problem = nil
        }
    }
}

extension Container {
    /// Records, in the history of each application with an entry for them, that packs were removed by name.
    ///
    /// - Parameters:
    ///   - removed: The packs.
    ///   - now: The time, in seconds since 1970.
    /// - Throws: ``ContainerError`` if a history cannot be read or written; the other histories are written
    ///   nevertheless.
    public func remember(removed: Set<PackID>, at now: Int64) throws(ContainerError) {
        guard !removed.isEmpty else { return }
        var failure: ContainerError?
        for application in try reader.applicationsWithHistory() {
            do throws(ContainerError) {
                try updateHistory(of: application) { history in
                    history.add(removed: removed, for: .removedByName, at: now)
                }
            } catch {
                failure = error
            }
        }
        if let failure { throw failure }
    }
}

import StageContainer
import StageControl
import StageEngine
import StageModel

/// The result of staging the packs of a plan.
struct StagedPacks: Sendable {
    /// The outcome of each attempted pack.
    var outcomes: [PackID: StagingOutcome] = [:]
    /// The last progress of each pack.
    var progress: [PackProgress] = []
    /// The generations that were removed to make room.
    var evicted: [Eviction] = []
    /// The packs that the daemon stages later, and the reasons to wait.
    var waiting: [PackID: [PendingReason]] = [:]
    /// The number of the daemon's transfer that continues the staging; `nil` if none does.
    var resumedTask: Int64?

    /// Adds the result of a later attempt at the same packs.
    mutating func add(_ later: StagedPacks) {
        // A later attempt reports packs of an earlier attempt as already staged.
        outcomes.merge(later.outcomes) { old, new in
            if case .staged = old, case .alreadyStaged = new { old } else { new }
        }
        let known = Set(later.progress.map(\.id))
        progress = progress.filter { !known.contains($0.id) } + later.progress
        evicted += later.evicted
        resumedTask = later.resumedTask ?? resumedTask
    }

    /// Returns whether a pack is staged.
    func hasStaged(_ id: PackID) -> Bool {
        switch outcomes[id] {
        case .staged, .alreadyStaged: true
        case .failed, nil: false
        }
    }

    /// The end to report to the daemon; `nil` if the work was interrupted and a worker resumes it.
    var end: StagingEnd? {
        // A pack that was refused before its first byte has no progress.
        let attempted = progress.map(\.id)
        let refused = Set(outcomes.keys).subtracting(attempted).sorted()
        let failures = (attempted + refused).compactMap { id -> StagingFailure? in
            guard case .failed(let error) = outcomes[id] else { return nil }
            return .engine(error, about: .pack(id))
        }
        return StagingEnd(of: failures)
    }
}

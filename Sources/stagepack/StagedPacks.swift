import StageContainer
import StageControl
import StageEngine
import StageModel

/// What became of the packs of a plan.
struct StagedPacks: Sendable {
    /// How each pack ended that was worked on.
    var outcomes: [PackID: StagingOutcome] = [:]
    /// What was known of them in the end.
    var progress: [PackProgress] = []
    /// What was removed to make room.
    var evicted: [Eviction] = []
    /// The packs that the daemon has staged later, and what they wait for.
    var waiting: [PackID: [Hold]] = [:]

    /// Adds what a later attempt at the same packs has come to.
    mutating func add(_ later: StagedPacks) {
        // What an earlier attempt has staged is there for a later one.
        outcomes.merge(later.outcomes) { old, new in
            if case .staged = old, case .alreadyStaged = new { old } else { new }
        }
        if !later.progress.isEmpty { progress = later.progress }
        evicted += later.evicted
    }

    /// Whether a pack is staged.
    func hasStaged(_ id: PackID) -> Bool {
        switch outcomes[id] {
        case .staged, .alreadyStaged: true
        case .failed, nil: false
        }
    }

    /// How the work ended, for the daemon; `nil` if it was interrupted, and is to be gone on with.
    var end: StagingEnd? {
        let failures = progress.compactMap { pack -> FailureReport? in
            guard case .failed(let error) = outcomes[pack.id] else { return nil }
            return FailureReport(CommandFailure(error, pack: pack.id))
        }
        return StagingEnd(of: failures)
    }
}

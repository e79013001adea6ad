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
    /// The plan of the last attempt, if it was made after the daemon had held the staging; `nil` for the first plan.
    var plan: Plan?

    /// Adds the result of a later attempt at the same packs.
    mutating func add(_ later: StagedPacks) {
        if let plan = later.plan {
            self.plan = plan
            // The new plan decides about all packs that are not staged.
            outcomes = outcomes.filter { hasStaged($0.key) }
        }
        // A later attempt reports packs of an earlier attempt as already staged.
        outcomes.merge(later.outcomes) { old, new in
            if case .staged = old { old } else { new }
        }
        let known = Set(later.progress.map(\.id))
        progress = progress.filter { !known.contains($0.id) } + later.progress
        evicted += later.evicted
        resumedTask = later.resumedTask ?? resumedTask
    }

    /// Adds the result of a later attempt at the essential packs alone, and the decisions of its plan about these.
    ///
    /// Other packs keep their decisions, and wait.
    ///
    /// - Parameters:
    ///   - essential: The result of the attempt.
    ///   - entries: The entries of the essential packs in the plan of the attempt.
    ///   - first: The first plan of the run.
    mutating func add(
        _ essential: StagedPacks,
        deciding entries: [Plan.Entry],
        after first: Plan
    ) {
        var later = essential
        later.plan = nil
        let earlier = self
        add(later)
        var decisions: [PackID: Plan.Entry] = [:]
        for entry in entries where !earlier.hasStaged(entry.pack.id) {
            let id = entry.pack.id
            decisions[id] = entry
            guard entry.decision == .skip(.upToDate), earlier.waiting[id] != nil,
                outcomes[id] == nil
            else { continue }
            // Another process has staged it meanwhile.
            outcomes[id] = .alreadyStaged
        }
        var plan = earlier.plan ?? first
        for index in plan.entries.indices {
            guard let entry = decisions[plan.entries[index].pack.id] else { continue }
            plan.entries[index] = entry
        }
        self.plan = plan
        waiting = waiting.filter { id, _ in
            guard outcomes[id] == nil else { return false }
            guard let entry = decisions[id] else { return true }
            if case .stage = entry.decision { return true }
            return false
        }
        waiting.merge(essential.waiting) { _, reasons in reasons }
    }

    /// Returns whether a pack is staged.
    func hasStaged(_ id: PackID) -> Bool {
        switch outcomes[id] {
        case .staged, .alreadyStaged: true
        case .failed, nil: false
        }
    }

    /// Returns the end to report to the daemon for the packs of its task; `nil` if the work was interrupted and a worker
    /// resumes it.
    ///
    /// A pack that was refused for lack of space after evictions has failed, and so has one that a new plan refuses.
    func end(of packs: [PackID]) -> StagingEnd? {
        var refusals: [PackID: Plan.Refusal] = [:]
        for entry in plan?.entries ?? [] {
            if case .refuse(let refusal) = entry.decision { refusals[entry.pack.id] = refusal }
        }
        let failures = packs.compactMap { id -> StagingFailure? in
            switch outcomes[id] {
            case .failed(let error): StagingFailure.engine(error, about: .pack(id))
            case .staged, .alreadyStaged: nil
            case nil: refusals[id].map { StagingFailure.refusal($0, of: .pack(id)) }
            }
        }
        return StagingEnd(of: failures)
    }
}

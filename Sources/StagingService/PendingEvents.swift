import StageEngine
import StageModel

extension Planner {
    /// Returns the events that a run is to complete: that of its selection, and those that earlier runs left incomplete.
    func events(of selection: PackSelection) -> Set<ContentRequest> {
        guard case .event(let request, _) = selection, request != .periodic else { return pending }
        return pending.union([request])
    }

    /// Returns the events for which packs are missing.
    ///
    /// Makes a plan for each event.
    func incomplete(_ events: Set<ContentRequest>) -> Set<ContentRequest> {
        events.filter { event in
            plan(for: .event(event, essentialOnly: false)).entries.contains(where: \.isMissing)
        }
    }
}

extension Plan.Entry {
    /// True if a later run is to stage the pack for the event.
    fileprivate var isMissing: Bool {
        switch decision {
        case .stage, .refuse(.noSpace), .refuse(.noInodes), .refuse(.exceedsQuota): true
        // The restrictions end with the first launch, after which a periodic run stages these packs.
        case .refuse(.exceedsAllowance), .refuse(.disallowedDomain): true
        // No later run stages these packs for the event.
        case .refuse(.pinned), .refuse(.otherVersion), .skip, .evict: false
        }
    }
}

extension PackSelection {
    /// True if the timer has started the run.
    var isPeriodic: Bool {
        if case .event(.periodic, _) = self { true } else { false }
    }

    /// True if the run is for essential content only.
    var isEssentialOnly: Bool {
        if case .event(_, essentialOnly: true) = self { true } else { false }
    }
}

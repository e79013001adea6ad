import FoundationEssentials
import Logging
import StageContainer
import StageEngine
import StageModel
import StageSystem
import SystemPackage

/// Remembers in the container what a run decided and did, for `why` and for the next run.
///
/// That it cannot be remembered is logged and fails nothing: packs are staged whatever is known of
/// them.
struct RunRecorder {
    private let container: Container
    private let registration: Registration?
    private let wanted: StagingRun.Wanted

    init(_ run: StagingRun, _ container: Container) {
        self.container = container
        registration = run.session.registration
        wanted = run.wanted
    }

    /// The recorder of a run that got no manifest; `nil` where there is no container to remember in.
    init?(_ run: StagingRun) {
        guard run.session.registration != nil, let path = run.session.knownContainer else {
            return nil
        }
        do throws(ContainerError) {
            self.init(run, try Container.make(path))
        } catch {
            Log.logger.debug("history: \(error)")
            return nil
        }
    }

    /// Remembers that there was no manifest.
    func record(_ failure: CommandFailure) {
        guard let application = registration?.application else { return }
        update(application) { history in
            history.lastRun = run(StagingHistory.Problem(failure))
            if case .event(let request, _) = wanted, request != .periodic {
                history.pending = history.pending ?? request ?? .install
            }
        }
    }

    /// Remembers what was decided and done with each pack.
    func record(_ report: StagingReport, _ selection: PackSelection, _ planner: Planner) {
        let pending = pending(after: selection, planner, report.files ?? [])
        // Before anything is locked: others wait for the lock.
        let hasLaunched = (try? container.reader.hasLaunched(report.application)) ?? false
        update(report.application) { history in
            let problem = (report.manifestProblem ?? report.extensionProblem)
                .map { StagingHistory.Problem($0) }
            history.lastRun = run(problem, selection)
            if case .event = selection { history.pending = pending }
            if history.firstLoadedAt == nil {
                history.spent.add(report, planner)
                if hasLaunched { history.firstLoadedAt = now }
            }
            history.add(report, selection, at: now)
        }
    }

    private var now: Int64 { Int64(Date().timeIntervalSince1970) }

    private func run(
        _ problem: StagingHistory.Problem?,
        _ selection: PackSelection? = nil
    ) -> StagingHistory.Run {
        var run = StagingHistory.Run(
            endedAt: now,
            request: nil,
            isEssentialOnly: false,
            problem: problem
        )
        if case .event(let request, let essentialOnly) = wanted {
            run.request = request
            run.isEssentialOnly = essentialOnly
        }
        if case .event(let request, _) = selection { run.request = request }
        return run
    }

    /// The installation or update of which packs are still missing.
    private func pending(
        after selection: PackSelection,
        _ before: Planner,
        _ files: [FileReport]
    ) -> ContentRequest? {
        guard case .event(let request, _) = selection else { return before.pending }
        let event = request == .periodic ? before.pending : request
        guard let event,
            var planner = try? Planner(manifest: before.manifest, container: container)
        else { return before.pending }
        planner.budget = before.budget
        planner.choices = before.choices
        planner.applicationVersion = before.applicationVersion
        let plan = planner.plan(for: .event(event, essentialOnly: false))
        let isMissing = plan.entries.contains { entry in
            switch entry.decision {
            case .stage, .refuse(.noSpace), .refuse(.exceedsQuota): true
            // Waiting does not help: the next launch lifts the restriction.
            case .refuse, .leave, .evict: false
            }
        }
        let isFileMissing = files.contains { file in
            file.outcome == .left
                || file.outcome == .failed
                    && file.error?.status != ExitStatus.restricted.rawValue
        }
        return isMissing || isFileMissing ? event : nil
    }

    private func update(
        _ application: ApplicationID,
        _ change: (inout StagingHistory) -> Void
    ) {
        do throws(ContainerError) {
            try container.updateHistory(of: application) { history in
                if let registration {
                    history.isRegistered = true
                    history.applicationVersion = registration.version
                }
                change(&history)
            }
        } catch {
            if case .file(let error) = error, error.errno == .resourceTemporarilyUnavailable {
                // Many runs at once: the others remember what has come of it.
                Log.logger.info("what happened is not remembered: \(error)")
            } else {
                Log.logger.warning("what happened cannot be remembered: \(error)")
            }
        }
    }
}

extension PackSelection {
    /// What decided about a pack, for a person.
    fileprivate func rule(for pack: PackReport) -> String {
        switch self {
        case .event(let request, essentialOnly: false):
            "policy '\(pack.policy)' at '\(request.rawValue)'"
        case .event(let request, essentialOnly: true):
            "policy '\(pack.policy)' at '\(request.rawValue)', essential packs only"
        case .packs: "asked for by name"
        case .repair: "asked for by 'repair'"
        }
    }

    /// Whether every pack of the manifest was looked at.
    fileprivate var isEvent: Bool {
        if case .event = self { true } else { false }
    }
}

extension StagingHistory {
    /// Takes over what a report says of each pack; of a run for packs by name, only those.
    fileprivate mutating func add(
        _ report: StagingReport,
        _ selection: PackSelection,
        at now: Int64
    ) {
        let before = Dictionary(packs.map { ($0.id, $0) }) { first, _ in first }
        var entries: [PackEntry] = []
        for pack in report.packs {
            if !selection.isEvent, pack.outcome == .left {
                if let entry = before[pack.id] { entries.append(entry) }
                continue
            }
            var entry = PackEntry(
                id: pack.id,
                version: pack.version,
                decidedAt: now,
                outcome: pack.outcome.rawValue,
                rule: selection.rule(for: pack),
                reason: pack.reason
            )
            entry.source = pack.source ?? before[pack.id]?.source
            if let error = pack.error {
                entry.failures = (before[pack.id]?.failures ?? 0) + 1
                entry.problem = Problem(error)
            }
            entries.append(entry)
        }
        packs = entries
    }
}

extension StagingHistory.Spending {
    /// Counts the archives of the packs that were staged.
    fileprivate mutating func add(_ report: StagingReport, _ planner: Planner) {
        for pack in report.packs where pack.outcome == .staged {
            guard let offered = planner.manifest[pack.id] else { continue }
            if planner.isEssential(offered) {
                essential += pack.downloadSize
            } else {
                other += pack.downloadSize
            }
        }
    }
}

extension StagingHistory.Problem {
    init(_ failure: CommandFailure) { self.init(FailureReport(failure)) }

    init(_ report: FailureReport) {
        self.init(
            message: report.message,
            hint: report.hint,
            retry: report.retry.rawValue,
            status: report.status
        )
    }
}

import FoundationEssentials
import Logging
import StageContainer
import StageEngine
import StageModel
import StagePack
import StageSystem
import SystemPackage

/// Records the decisions and outcomes of a run in the container, for `why` and for the next run.
///
/// Logs an error while recording, and does not fail the run: packs are staged with or without history.
struct RunRecorder {
    private let container: Container
    private let registration: Registration?
    private let registrationPath: FilePath?
    /// The application of a run without a manifest; `nil` if it is not known.
    private var application: ApplicationID?
    private let wanted: StagingRequest.Packs
    private let isRepetition: Bool
    private let logger: Logger

    init(_ service: StagingService, in container: Container) {
        self.container = container
        registration = service.request.target.registration
        registrationPath = service.request.target.registrationPath
        wanted = service.request.packs
        isRepetition = service.request.isRepetition
        logger = service.logger
    }

    /// Creates the recorder of a run that got no manifest from a source.
    ///
    /// The application is the registered one, or that of the manifest that the container has stored for the
    /// source. `nil` if neither exists, or if there is no container.
    init?(_ service: StagingService, withoutManifestOf source: ManifestSource) {
        let target = service.request.target
        guard let path = target.knownContainer else { return nil }
        do throws(ContainerError) {
            if let registration = target.registration {
                self.init(service, in: try Container.make(path))
                application = registration.application
            } else {
                guard let container = try Container.open(path) else { return nil }
                self.init(service, in: container)
                application = try container.reader.application(ofManifestFrom: source.urls)
            }
        } catch {
            service.logger.debug(
                "The history of the run cannot be opened",
                metadata: ["error": "\(error)"]
            )
            return nil
        }
    }

    /// Records durably that events are incomplete, before the run stages their packs.
    ///
    /// - Throws: ``ContainerError`` if the lock of the history cannot be acquired, or the history not be written.
    func note(
        _ events: Set<ContentRequest>,
        of application: ApplicationID,
        after record: HistoryRecord?
    ) throws(ContainerError) {
        try change(historyOf: application, after: record, waitingSeconds: 1) {
            $0.pending.formUnion(events)
        }
    }

    /// Records that the run ended without a result.
    func record(_ failure: StagingFailure) {
        guard let application, !isOfOtherRoot(failure, for: application) else { return }
        let planner = storedPlanner(application)
        updateHistory(of: application, isReported: failure.kind == .containerUnusable) { history in
            history.lastRun = run(problem: StagingHistory.Problem(failure), at: now)
            guard case .event(let request, _) = wanted else { return }
            let event = request ?? history.pending.next ?? planner?.request ?? .install
            history.lastRun?.request = event
            if event != .periodic { history.pending.insert(event) }
        }
    }

    /// Returns whether a manifest was refused only because of the root that the command named, or did not name: that says
    /// nothing about the application's runs, whose failure it would hide.
    private func isOfOtherRoot(
        _ failure: StagingFailure,
        for application: ApplicationID
    ) -> Bool {
        guard case .engine(.manifestRefused(_, let refusal), _) = failure else { return false }
        switch refusal {
        case .unsigned, .otherRoot: return true
        case .insecure:
            // Without access to the metadata, the refusal counts.
            return registration == nil && (try? container.reader.hasTrust(for: application)) == true
        default: return false
        }
    }

    /// Returns the planner for the application's stored manifest; `nil` if there is no usable one.
    private func storedPlanner(_ application: ApplicationID) -> Planner? {
        // Without a readable manifest, an installation is pending.
        guard let stored = try? container.reader.storedManifest(for: application),
            let manifest = try? stored.manifest(of: application)
        else { return nil }
        return try? Planner(manifest: manifest, container: container)
    }

    /// Records the decision and the outcome for each pack.
    ///
    /// - Parameters:
    ///   - result: The result of the run.
    ///   - selection: The selection of packs of the run.
    ///   - planner: The planner of the run.
    ///   - before: The history before the run.
    ///   - incomplete: The events that lacked packs when the run began.
    func record(
        _ result: StagingResult,
        of selection: PackSelection,
        by planner: Planner,
        after before: HistoryRecord?,
        incomplete: Set<ContentRequest>
    ) {
        let events = planner.events(of: selection)
        let pending = pending(of: events, planner: planner, result: result, before: incomplete)
        // Done before taking the lock, which other processes wait for.
        let hasLaunched =
            before?.history?.firstLoadedAt == nil
            && (try? container.reader.hasLoadedPack(
                afterRunBy: planner,
                hasChangedPacks: result.hasChangedPacks
            )) ?? false
        let now = now
        updateHistory(of: result.application, after: before) { history in
            let problem = (result.manifestProblem ?? result.extensionProblem)
                .map(StagingHistory.Problem.init)
            var ended = run(problem: problem, selection: selection, at: now)
            ended.hasFailed = ended.hasFailed || result.hasFailures
            history.lastRun = ended
            if case .event = selection {
                // Other events may have begun meanwhile.
                history.pending.subtract(events)
                history.pending.formUnion(pending)
            }
            if history.firstLoadedAt == nil {
                history.spent.add(result, by: planner)
                if hasLaunched { history.firstLoadedAt = now }
            }
            history.add(result, of: selection, isRepetition: isRepetition, at: now)
            // A run for named packs says nothing about the others, whose failure it would hide.
            if selection.isEvent, !ended.hasFailed { history.lastSuccessAt = ended.endedAt }
        }
    }

    private var now: Int64 { Int64(Date().timeIntervalSince1970) }

    private func run(
        problem: StagingHistory.Problem?,
        selection: PackSelection? = nil,
        at now: Int64
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

    /// Returns the events for which packs or files are still missing.
    private func pending(
        of events: Set<ContentRequest>,
        planner before: Planner,
        result: StagingResult,
        before incomplete: Set<ContentRequest>
    ) -> Set<ContentRequest> {
        let isFileMissing = (result.files ?? []).contains { file in
            file.outcome == .left || file.outcome == .failed
        }
        if isFileMissing { return events }
        // Nothing has changed since `incomplete` was computed; an extension's choices would have changed the plan.
        if !result.hasChangedPacks, before.choices == nil { return incomplete }
        // All events count as incomplete if the container cannot be read.
        let planner = result.hasChangedPacks ? try? before.refreshed(from: container) : before
        return planner?.incomplete(events) ?? events
    }

    private func updateHistory(
        of application: ApplicationID,
        after record: HistoryRecord? = nil,
        isReported: Bool = false,
        _ change: (inout StagingHistory) -> Void
    ) {
        do throws(ContainerError) {
            try self.change(historyOf: application, after: record, change)
        } catch {
            if isReported || error.isHeldByOthers {
                // This is no warning: the run reports the unusable container itself, or other runs hold the lock and record their outcome.
                logger.info(
                    "The history of the run is not written",
                    metadata: ["error": "\(error)"]
                )
            } else {
                logger.warning(
                    "The history of the run cannot be written",
                    metadata: ["error": "\(error)"]
                )
            }
        }
    }
}

extension RunRecorder {
    private func change(
        historyOf application: ApplicationID,
        after record: HistoryRecord?,
        waitingSeconds seconds: Int = 5,
        _ change: (inout StagingHistory) -> Void
    ) throws(ContainerError) {
        try container.updateHistory(
            of: application,
            after: record,
            waitingSeconds: seconds
        ) { history in
            if let registration {
                history.registration = registrationPath?.string ?? history.registration
                history.applicationVersion = registration.version
            }
            change(&history)
        }
    }
}

extension StagingResult {
    /// True if staging a pack or a file failed.
    var hasFailures: Bool {
        packs.contains { $0.failure != nil } || (files ?? []).contains { $0.failure != nil }
    }
}

extension PackSelection {
    /// Returns the rule that decided about a pack.
    fileprivate func rule(for pack: Pack) -> StagingHistory.Rule {
        switch self {
        case .event(let request, let isEssentialOnly):
            .policy(name: pack.policy.name, event: request, isEssentialOnly: isEssentialOnly)
        case .packs: .name
        case .repair: .repair
        }
    }

    /// Returns whether the caller ended the run early, by a cancellation or a time limit: the failure is then not the pack's.
    fileprivate func isInterruption(_ failure: StagingFailure) -> Bool {
        switch failure.kind {
        case .interrupted: true
        case .deadlineExceeded, .inUse: !isEvent
        default: false
        }
    }

    /// True if the run decided about every pack of the manifest.
    fileprivate var isEvent: Bool {
        if case .event = self { true } else { false }
    }

    /// Returns whether a run skipped a pack only because the run was for other packs.
    fileprivate func isAboutOthers(than pack: PackResult) -> Bool {
        guard pack.outcome == .left else { return false }
        return switch pack.reason {
        case .notEssential, .onDemand, .otherEvents: true
        default: !isEvent
        }
    }
}

extension StagingHistory {
    /// Number of days for which the last decision about a pack that no manifest offers any more is kept.
    private static let daysOfOthers: Int64 = 90
    /// Maximum number of recorded decisions about packs that no manifest offers any more.
    private static let countOfOthers = 100

    /// Records the result for the packs that the run was for; each other pack keeps its last decision.
    fileprivate mutating func add(
        _ result: StagingResult,
        of selection: PackSelection,
        isRepetition: Bool,
        at now: Int64
    ) {
        let before = Dictionary(packs.map { ($0.id, $0) }) { first, _ in first }
        let known = Set(result.packs.map(\.id))
        var entries: [PackEntry] = []
        for pack in result.packs {
            if selection.isAboutOthers(than: pack) {
                if let entry = before[pack.id], !selection.isEvent || entry.outcome != .left {
                    entries.append(entry)
                    continue
                }
                if !selection.isEvent { continue }
            }
            var entry = PackEntry(
                id: pack.id,
                version: pack.pack.version,
                decidedAt: now,
                outcome: pack.outcome,
                rule: selection.rule(for: pack.pack),
                reason: pack.reason
            )
            // The source of another version does not apply to this one.
            let earlier = before[pack.id].flatMap { $0.version == entry.version ? $0.source : nil }
            entry.source = pack.source ?? earlier
            if let failure = pack.failure {
                let failures = before[pack.id]?.failures ?? 0
                let isCounted =
                    !selection.isInterruption(failure) && (failures == 0 || !isRepetition)
                entry.failures = min(
                    failures + (isCounted ? 1 : 0),
                    RecordLimits.failures.upperBound
                )
                entry.problem = Problem(failure)
            }
            entries.append(entry)
        }
        add(removed: Set(result.removed ?? []), for: .offeredNoMore, at: now)
        var others = packs.filter { !known.contains($0.id) }
        if selection.isEvent {
            others.removeAll { $0.decidedAt < now - Self.daysOfOthers * 86_400 }
            others = Array(others.prefix(Self.countOfOthers))
        }
        packs = entries + others
    }
}

extension ContainerReader {
    /// Returns the application whose stored manifest came from one of these URLs; `nil` if there is none.
    fileprivate func application(
        ofManifestFrom urls: [String]
    ) throws(ContainerError) -> ApplicationID? {
        for id in try applications() {
            if let stored = try storedManifest(for: id), urls.contains(stored.url),
                !stored.isMisplaced(under: id)
            {
                return id
            }
        }
        return nil
    }
}

extension StagingHistory.Spending {
    /// Adds the archives of staged packs, and the files that were received for an extension.
    fileprivate mutating func add(_ result: StagingResult, by planner: Planner) {
        for pack in result.packs where pack.outcome == .staged {
            if planner.isEssential(pack.pack) {
                essential += pack.pack.downloadSize
            } else {
                other += pack.pack.downloadSize
            }
        }
        for file in result.files ?? [] {
            let size = file.transferred ?? .zero
            if file.isEssential { essential += size } else { other += size }
        }
        essential = min(essential, RecordLimits.spent)
        other = min(other, RecordLimits.spent)
    }
}

extension StagingHistory.Problem {
    fileprivate init(_ failure: StagingFailure) {
        self.init(
            kind: failure.kind.rawValue,
            message: failure.shortDescription,
            advice: failure.advice?.rawValue,
            retryAfter: failure.retryAfter.map(\.components.seconds),
            retry: failure.retryAdvice.rawValue
        )
    }
}

extension DownloadPolicy {
    /// The name of the policy in a manifest.
    package var name: String {
        switch self {
        case .essential: "essential"
        case .prefetch: "prefetch"
        case .onDemand: "onDemand"
        }
    }
}

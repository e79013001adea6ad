import FoundationEssentials
import StageContainer
import StageEngine
import StageModel
import StagePack
import StagingService
import SystemPackage

/// Output of `why` for one application.
struct HistoryReport: Encodable {
    var container: String
    /// The owner of the container, user or system; `nil` for a container at another path.
    var location: ContainerLocation?
    var application: ApplicationID
    var isRegistered: Bool
    var applicationVersion: String?
    var lastRun: Date?
    var request: ContentRequest?
    var isEssentialOnly: Bool
    /// The reason why the last run had no manifest, used the stored one, or received no answer from the extension.
    var problem: FailureReport?
    /// The first event whose packs are not all staged; the next periodic run completes it.
    var pending: ContentRequest?
    /// All events whose packs are not all staged, for people.
    private var pendingEvents: Set<ContentRequest>
    /// The time at which a run first noticed that the application had loaded a pack; restrictions apply until
    /// then.
    var firstLoaded: Date?
    var packs: [Entry]
    /// The signed metadata that verifies the manifest; `nil` without a root.
    var trust: TrustSummary?

    private enum CodingKeys: String, CodingKey {
        case container, location, application, isRegistered, applicationVersion, lastRun, request
        case isEssentialOnly, problem, pending, firstLoaded, packs, trust
    }

    struct Entry: Encodable {
        var id: PackID
        var version: Int
        var decided: Date
        var outcome: String
        var rule: String
        var reason: String
        /// The reason, with times in a form for people.
        var textOfReason: String
        var source: String?
        /// Number of consecutive runs that failed to stage the pack.
        var failures: Int
        var problem: FailureReport?
        /// The current pin of the pack.
        var pin: PinStatus?
        /// The version that is staged now; `nil` if none is.
        var currentVersion: Int?
        /// The identifier of the daemon's unfinished task for the pack; `nil` without one.
        var transfer: Int64?
        /// `true` if the policy of the pack is `onDemand`.
        var isOnDemand = false

        private enum CodingKeys: String, CodingKey {
            case id, version, decided, outcome, rule, reason, source, failures, problem, pin
            case currentVersion, transfer
        }
    }

    /// Creates the report; its hints name the application, or the container if the application is not
    /// registered.
    init(in path: FilePath, of id: ApplicationID, history: StagingHistory) {
        let source = Self.source(for: id, in: path, isRegistered: history.isRegistered)
        self = HintSource.$current.withValue(source) {
            HistoryReport(inSource: path, of: id, history: history)
        }
    }

    private static func source(
        for id: ApplicationID,
        in container: FilePath,
        isRegistered: Bool
    ) -> HintSource {
        isRegistered
            ? HintSource.current.ofApplication(id)
            : HintSource(application: nil, container: container)
    }

    private init(inSource path: FilePath, of id: ApplicationID, history: StagingHistory) {
        container = path.string
        application = id
        isRegistered = history.isRegistered
        applicationVersion = history.applicationVersion
        lastRun = history.lastRun.map { Self.date($0.endedAt) }
        request = history.lastRun?.request
        isEssentialOnly = history.lastRun?.isEssentialOnly ?? false
        problem = history.lastRun?.problem.map { FailureReport($0, about: nil) }
        pending = history.pending.next
        pendingEvents = history.pending
        firstLoaded = history.firstLoadedAt.map(Self.date)
        packs = history.packs.map { entry in
            Entry(
                id: entry.id,
                version: entry.version,
                decided: Self.date(entry.decidedAt),
                outcome: entry.outcome.rawValue,
                rule: entry.rule.text,
                reason: entry.reason.text(for: entry.outcome, audience: .programs),
                textOfReason: entry.reason.text(for: entry.outcome, audience: .people),
                source: entry.source,
                failures: entry.failures,
                problem: entry.problem.map { FailureReport($0, about: entry.id) }
            )
        }
    }

    private static func date(_ seconds: Int64) -> Date {
        Date(timeIntervalSince1970: Double(seconds))
    }
}

extension Set<ContentRequest> {
    /// The names of the events, for people.
    var listed: String {
        ContentRequest.allCases.filter(contains).map { "'\($0.rawValue)'" }.joined(
            separator: " and "
        )
    }
}

extension HistoryReport: CustomStringConvertible {
    /// A paragraph for the application, then one for each pack.
    var description: String {
        let source = Self.source(
            for: application,
            in: FilePath(container),
            isRegistered: isRegistered
        )
        return HintSource.$current.withValue(source) {
            ([head] + packs.map(\.description)).joined(separator: "\n")
        }
    }

    private var head: String {
        let version = applicationVersion.map { " \($0.escapedForDisplay)" } ?? ""
        let location = location.map { " (\($0.rawValue))" } ?? ""
        var lines = ["\(application)\(version) in \(container.escapedForDisplay)\(location)"]
        if let lastRun {
            let event = request.map { " for '\($0.rawValue)'" } ?? " for packs by name"
            let only = isEssentialOnly ? ", essential packs only" : ""
            lines.append("  last run: \(InternetTime(lastRun).text)\(event)\(only)")
        } else if isRegistered {
            let next = HintSource.current.staging("prefetch").map { "; \($0) is the first" } ?? ""
            lines.append("  no run has ended yet\(next)")
        }
        if let problem {
            lines.append("  problem: \(problem.message.escapedForDisplay)")
            if let hint = problem.hint { lines.append("  to do: \(hint)") }
        }
        if !pendingEvents.isEmpty {
            let next =
                isRegistered
                ? "'stagepack prefetch --all --event periodic'"
                : HintSource.current.staging("prefetch")
            let hint = next.map { "; \($0) completes it" } ?? ""
            lines.append("  not complete: \(pendingEvents.listed)\(hint)")
        }
        if let trust {
            lines += trust.description.split(separator: "\n").map { "  \($0)" }
        }
        return lines.joined(separator: "\n")
    }
}

extension HistoryReport.Entry: CustomStringConvertible {
    /// The decision, with its time, its rule, and the recommended action.
    var description: String {
        var lines = [
            "\(id), version \(version): \(outcome), \(textOfReason.escapedForDisplay)",
            "  decided: \(InternetTime(decided).text), \(rule.escapedForDisplay)",
        ]
        let isStaged = ["staged", "present"].contains(outcome)
        if isStaged, let currentVersion, currentVersion != version {
            lines.append("  now: version \(currentVersion) is staged here")
        }
        if let source { lines.append("  from: \(source.escapedForDisplay)") }
        if let pin {
            lines.append("  held: \(pin.text), since \(InternetTime(pin.since).text)")
            if let release = HintSource.current.local("pin", "--release", id.text) {
                lines.append("  to do: run \(release) to permit updates")
            }
        }
        if let problem {
            let runs =
                failures == 0 ? "" : failures.quantity(of: "run", plural: "runs in a row") + ", "
            lines.append("  tried: \(runs)\(problem.message.escapedForDisplay)")
            lines.append("  again: \(again(problem))")
            if let hint = problem.hint { lines.append("  to do: \(hint)") }
        }
        return lines.joined(separator: "\n")
    }

    private func again(_ problem: FailureReport) -> String {
        if let transfer { return "by the daemon, as transfer \(transfer)" }
        if problem.retry == .never { return "not without a change" }
        return isOnDemand ? "when it is asked for" : "in the next run"
    }
}

extension StagingHistory.Rule {
    /// The rule as a fragment for people.
    fileprivate var text: String {
        switch self {
        case .policy(let name, let event, let isEssentialOnly):
            "policy '\(name)' at '\(event.rawValue)'"
                + (isEssentialOnly ? ", essential packs only" : "")
        case .name: "asked for by name"
        case .repair: "asked for by 'repair'"
        }
    }
}

extension FailureReport {
    /// Creates the report of a recorded failure; an advice code of another version of this program gives no
    /// hint.
    init(_ problem: StagingHistory.Problem, about pack: PackID?) {
        let advice = problem.advice.flatMap(StagingAdvice.init(rawValue:))
        let kind = StagingFailure.Kind(rawValue: problem.kind)
        let pause = problem.retryAfter.map { Duration.seconds($0) }
        self.init(
            CommandFailure(
                status: kind.map { $0.exitStatus } ?? .unfinished,
                message: problem.message,
                hint: advice?.textForLater(after: pause, about: pack),
                retryAdvice: RetryAdvice(rawValue: problem.retry) ?? .later
            )
        )
    }
}

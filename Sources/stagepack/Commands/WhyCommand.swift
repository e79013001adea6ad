import ArgumentParser
import FoundationEssentials
import StageContainer
import StageControl
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

struct WhyCommand: SourcedSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "why",
        abstract: "Explain what was decided about packs, and list transfers that wait.",
        discussion: """
            Reads the records of earlier runs in the container, and asks the daemon, where one \
            runs, for transfers that wait. Uses no network.
            """
    )

    @Argument(help: "The pack; without it, every pack.", transform: PackArgument.parse)
    var pack: PackID?

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup var scope: ScopeOptions
    @Flag(help: "Print the result as JSON.") var json = false

    var printsJSON: Bool { json }

    mutating func validate() throws { try scope.check(with: source) }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let scopes = try ContainerScopes(source)
        var reports: [HistoryReport] = []
        for scope in scopes.scopes {
            let only = scope.session.target.registration?.application
            for path in scope.containers {
                reports += try Self.reports(at: path, only, pack, scope.session)
            }
        }
        let transfers = await waitingTransfers()
        if let pack, reports.isEmpty, transfers.isEmpty {
            throw CommandFailure(
                status: .unknownPack,
                message: "nothing was decided about pack '\(pack)' yet",
                hint: Self.nextStep,
                retry: .never
            )
        }
        Console.print(WhyReport(applications: reports, transfers: transfers), asJSON: json)
        return scopes.conclude(.success)
    }

    /// The commands that decide about packs.
    private static var nextStep: String {
        let source = HintSource.current
        guard let prefetch = source.staging("prefetch"), let plan = source.staging("plan") else {
            return
                "run 'stagepack app list' to see the applications that are registered, and name one with --app"
        }
        return "run \(prefetch), or \(plan) to see what it would do"
    }

    /// The daemon's transfers that wait, of the pack or of all; none where no daemon runs.
    private func waitingTransfers() async -> [TaskReport] {
        let environment = ProcessEnvironment.current
        do throws(ControlError) {
            let tasks = try await ControlClient.discover(environment: environment).tasks()
            return tasks.filter { task in
                !task.hasEnded && !task.holds.isEmpty
                    && (pack.map(task.isFor) ?? true)
            }
            .map(TaskReport.init)
        } catch {
            return []
        }
    }

    private static func trust(
        at path: FilePath,
        _ session: Session
    ) throws(CommandFailure) -> [TrustSummary] {
        let reader: ContainerReader?
        do throws(ContainerError) {
            reader = try ContainerReader.open(path)
        } catch {
            throw CommandFailure(error)
        }
        return try reader.map { reader throws(CommandFailure) in
            try session.trustSummaries(reader)
        } ?? []
    }

    private static func reports(
        at path: FilePath,
        _ only: ApplicationID?,
        _ pack: PackID?,
        _ session: Session
    ) throws(CommandFailure) -> [HistoryReport] {
        let trust = try trust(at: path, session)
        do throws(ContainerError) {
            guard let reader = try ContainerReader.open(path) else { return [] }
            var reports: [HistoryReport] = []
            for id in try reader.applicationsWithHistory() where only == nil || only == id {
                guard var history = try reader.history(of: id) else { continue }
                if let pack {
                    history.packs.removeAll { $0.id != pack }
                    if history.packs.isEmpty { continue }
                }
                var report = HistoryReport(path, id, history)
                report.trust = trust.first { $0.application == id }
                report.location = session.location(of: path)
                for index in report.packs.indices {
                    let id = report.packs[index].id
                    report.packs[index].pin = try reader.pin(of: id).map { PinStatus(id, $0) }
                }
                reports.append(report)
            }
            return reports
        } catch {
            throw CommandFailure(error)
        }
    }
}

extension TransferTask {
    /// Whether the task brings a pack: a staging names all of its packs.
    fileprivate func isFor(_ pack: PackID) -> Bool {
        let names = request.description?.split(separator: " ") ?? []
        return request.kind == .staging
            ? names.contains { $0 == pack.text } : names == [pack.text[...]]
    }
}

/// What `why` prints.
struct WhyReport: Encodable, CustomStringConvertible {
    var applications: [HistoryReport]
    /// The daemon's transfers that wait.
    var transfers: [TaskReport]

    var description: String {
        let waiting = transfers.isEmpty ? [] : ["Transfers that wait:"]
        return (applications.map(\.description) + waiting + transfers.map(\.description))
            .joined(separator: "\n")
    }
}

/// What `why` prints of one application.
struct HistoryReport: Codable {
    var container: String
    /// Whose container it is; `nil` for one in another place.
    var location: ContainerLocation?
    var application: ApplicationID
    var isRegistered: Bool
    var applicationVersion: String?
    var lastRun: Date?
    var request: ContentRequest?
    var isEssentialOnly: Bool
    /// Why the last run had no manifest, or not the server's, or no answer of the extension.
    var problem: FailureReport?
    /// The event of which packs are still missing: the next periodic run completes it.
    var pending: ContentRequest?
    /// When the application was seen to have loaded a pack; restrictions bind until then.
    var firstLoaded: Date?
    var packs: [Entry]
    /// The signed metadata that the manifest is verified with; `nil` without a root.
    var trust: TrustSummary?

    struct Entry: Codable {
        var id: PackID
        var version: Int
        var decided: Date
        var outcome: String
        var rule: String
        var reason: String
        var source: String?
        /// How many runs in a row could not stage it.
        var failures: Int
        var problem: FailureReport?
        /// What holds the pack now.
        var pin: PinStatus?
    }

    /// Creates the report; its hints name the application, or the container of one that is not registered.
    init(_ path: FilePath, _ id: ApplicationID, _ history: StagingHistory) {
        let source = Self.source(id, path, history.isRegistered)
        self = HintSource.$current.withValue(source) { HistoryReport(inSource: path, id, history) }
    }

    private static func source(
        _ id: ApplicationID,
        _ container: FilePath,
        _ isRegistered: Bool
    ) -> HintSource {
        isRegistered
            ? HintSource.current.ofApplication(id)
            : HintSource(application: nil, container: container)
    }

    private init(inSource path: FilePath, _ id: ApplicationID, _ history: StagingHistory) {
        container = path.string
        application = id
        isRegistered = history.isRegistered
        applicationVersion = history.applicationVersion
        lastRun = history.lastRun.map { Self.date($0.endedAt) }
        request = history.lastRun?.request
        isEssentialOnly = history.lastRun?.isEssentialOnly ?? false
        problem = history.lastRun?.problem.map { FailureReport($0, about: nil) }
        pending = history.pending
        firstLoaded = history.firstLoadedAt.map(Self.date)
        packs = history.packs.map { entry in
            Entry(
                id: entry.id,
                version: entry.version,
                decided: Self.date(entry.decidedAt),
                outcome: entry.outcome.rawValue,
                rule: entry.rule.text,
                reason: entry.reason.text(for: entry.outcome),
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

extension HistoryReport: CustomStringConvertible {
    /// A paragraph for the application, then one for each pack.
    var description: String {
        let source = Self.source(application, FilePath(container), isRegistered)
        return HintSource.$current.withValue(source) {
            ([head] + packs.map(\.description)).joined(separator: "\n")
        }
    }

    private var head: String {
        let version = applicationVersion.map { " \($0)" } ?? ""
        let location = location.map { " (\($0.rawValue))" } ?? ""
        var lines = ["\(application)\(version) in \(container)\(location)"]
        if let lastRun {
            let event = request.map { " for '\($0.rawValue)'" } ?? " for packs by name"
            let only = isEssentialOnly ? ", essential packs only" : ""
            lines.append("  last run: \(InternetTime(lastRun))\(event)\(only)")
        }
        if let problem {
            lines.append("  problem: \(problem.message)")
            if let hint = problem.hint { lines.append("  to do: \(hint)") }
        }
        if let pending {
            let next =
                isRegistered
                ? "'stagepack prefetch --all --event periodic'"
                : HintSource.current.staging("prefetch")
            let hint = next.map { "; \($0) goes on with it" } ?? ""
            lines.append("  not complete: '\(pending.rawValue)'\(hint)")
        }
        if let trust {
            lines += trust.description.split(separator: "\n").map { "  \($0)" }
        }
        return lines.joined(separator: "\n")
    }
}

extension HistoryReport.Entry: CustomStringConvertible {
    /// What was decided, when and by what, and what is to be done about it.
    var description: String {
        var lines = [
            "\(id), version \(version): \(outcome), \(reason)",
            "  decided: \(InternetTime(decided)), \(rule)",
        ]
        if let source { lines.append("  from: \(source)") }
        if let pin {
            lines.append("  held: \(pin.text), since \(InternetTime(pin.since))")
            if let release = HintSource.current.local("pin", "--release", id.text) {
                lines.append("  to do: \(release) lets it be updated")
            }
        }
        if let problem {
            let runs = failures.quantity(of: "run", plural: "runs in a row")
            lines.append("  tried: \(runs), \(problem.message)")
            lines.append("  again: \(again(problem))")
            if let hint = problem.hint { lines.append("  to do: \(hint)") }
        }
        return lines.joined(separator: "\n")
    }

    private func again(_ problem: FailureReport) -> String {
        problem.retry == .never ? "not without a change" : "in the next run"
    }
}

extension StagingHistory.Rule {
    /// The rule for a person, as a fragment.
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
    /// Creates the report of a failure that is remembered; a code of another version of this program has no
    /// words.
    init(_ problem: StagingHistory.Problem, about pack: PackID?) {
        let advice = problem.advice.flatMap(StagingAdvice.init(rawValue:))
        let kind = StagingFailure.Kind(rawValue: problem.kind)
        self.init(
            CommandFailure(
                status: kind.map { ExitStatus($0) } ?? .unfinished,
                message: problem.message,
                hint: advice?.text(
                    after: problem.retryAfter.map { .seconds($0) },
                    about: pack
                ),
                retry: RetryAdvice(rawValue: problem.retry) ?? .later
            )
        )
    }
}

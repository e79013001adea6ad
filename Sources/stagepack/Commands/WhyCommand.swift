import ArgumentParser
import FoundationEssentials
import StageContainer
import StageControl
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

struct WhyCommand: ScopedSubcommand, ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "why",
        abstract: "Explain what was decided about packs, and list transfers that wait.",
        discussion: """
            Reads the records of earlier runs in the container, and asks the daemon, where one \
            runs, for transfers that wait. Uses no network.
            """
    )

    @Argument(
        help: "The pack. Default: every pack.",
        completion: PackCompletion.kind,
        transform: PackArgument.parse
    )
    var pack: PackID?

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup var scope: ScopeOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        var scopes = try ContainerScopes(source)
        let tasks = await unfinishedTasks(in: scopes)
        var reports: [HistoryReport] = []
        for scope in scopes.scopes {
            do throws(CommandFailure) {
                // Without options, an application whose first run is still to come has no container.
                if !scopes.isAll { try scope.session.checkNamedContainer() }
                reports += try self.reports(of: scope, tasks: tasks)
            } catch {
                try scopes.record(error)
            }
        }
        if scopes.isAll, pack == nil, !reports.isEmpty {
            reports += Self.reportsWithoutRun(in: scopes, besides: reports)
        }
        let transfers = waitingTransfers(among: tasks, in: scopes)
        if let pack, reports.isEmpty, transfers.isEmpty {
            try scopes.checkForFailures()
            throw CommandFailure(
                status: .unknownPack,
                message: "nothing was decided about pack '\(pack)' yet",
                hint: nextStep(for: pack, in: scopes),
                retryAdvice: .never,
                unknownPack: pack
            )
        }
        var report = WhyReport(applications: reports, transfers: transfers, pack: pack)
        report.similarPack = pack.flatMap(scopes.pack(similarTo:))
        let status = scopes.conclude(report, asJSON: json)
        if !json, status == .success, reports.isEmpty, transfers.isEmpty {
            Console.note("no run has decided anything yet\nhint: \(Self.nextStep)")
        }
        return status
    }

    /// Returns the reports of the containers of a scope, with the daemon's tasks for their packs.
    private func reports(
        of scope: ContainerScope,
        tasks: [TransferTask]
    ) throws(CommandFailure) -> [HistoryReport] {
        var reports: [HistoryReport] = []
        for path in scope.containers {
            reports += try Self.reports(
                at: path,
                application: scope.session.target.registration?.application,
                pack: pack,
                session: scope.session
            )
        }
        for index in reports.indices { reports[index].add(tasks) }
        return reports
    }

    /// Returns reports for the registered applications for which no run has ended, such as those that deadlines left no time for.
    private static func reportsWithoutRun(
        in scopes: ContainerScopes,
        besides reports: [HistoryReport]
    ) -> [HistoryReport] {
        let known = Set(reports.map(\.application))
        let folders = RegistrationFolders(environment: ProcessEnvironment.current).folders
        return scopes.scopes.flatMap { scope in
            scope.applications.compactMap { id -> HistoryReport? in
                guard !known.contains(id), let path = scope.own else { return nil }
                var history = StagingHistory()
                history.registration = RegistrationLocations.files(of: id, in: folders).last?.string
                var report = HistoryReport(in: path, of: id, history: history)
                report.location = scope.location(of: path)
                return report
            }
        }
    }

    /// Returns the next step for a pack about which nothing was decided.
    private func nextStep(for pack: PackID, in scopes: ContainerScopes) -> String {
        // Without options, all applications are searched, and none of them has the pack.
        let isUnknown =
            scopes.isAll && !scopes.scopes.isEmpty
            && !scopes.scopes.contains { $0.session.knownPacks.contains(pack) }
        return isUnknown
            ? "run 'stagepack ls --missing' to see all packs" : Self.nextStep
    }

    /// The commands that decide about packs.
    private static var nextStep: String {
        let source = HintSource.current
        guard let prefetch = source.staging("prefetch"), let plan = source.staging("plan") else {
            let folders = RegistrationFolders(environment: ProcessEnvironment.current)
            // Folders that cannot be read may have applications.
            if let known = try? folders.applications(), known.isEmpty {
                return "no application is registered: \(ContainerScopes.hintToRegister)"
            }
            return
                "run 'stagepack app list' to see the applications that are registered, and name one with --app"
        }
        return "run \(prefetch), or \(plan) to see what it would do"
    }

    /// Returns the daemon's tasks that have not ended, without stagings of other applications than the one that the options
    /// name; empty if no daemon runs.
    private func unfinishedTasks(in scopes: ContainerScopes) async -> [TransferTask] {
        let environment = ProcessEnvironment.current
        let named =
            source.app == nil ? nil : scopes.scopes.first?.session.target.registration?.application
        do throws(ControlError) {
            let tasks = try await ControlClient.discover(environment: environment).tasks()
            return tasks.filter { task in
                guard !task.hasEnded else { return false }
                guard let named, let other = task.request.staging?.application else { return true }
                return other == named.text
            }
        } catch {
            return []
        }
    }

    /// Returns the tasks that wait, for the pack or for all packs.
    ///
    /// A staging whose description omits some of its packs counts as one for the pack if a manifest in the containers
    /// offers the pack.
    private func waitingTransfers(
        among tasks: [TransferTask],
        in scopes: ContainerScopes
    ) -> [TaskReport] {
        let waiting = tasks.filter { !$0.pendingReasons.isEmpty }
        guard let pack else { return waiting.map(TaskReport.init) }
        let isKnown = scopes.scopes.contains { $0.session.knownPacks.contains(pack) }
        return waiting.filter { $0.request.isFor(pack) ?? isKnown }.map(TaskReport.init)
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
        application only: ApplicationID?,
        pack: PackID?,
        session: Session
    ) throws(CommandFailure) -> [HistoryReport] {
        let trust = try trust(at: path, session)
        do throws(ContainerError) {
            guard let reader = try ContainerReader.open(path) else { return [] }
            var reports: [HistoryReport] = []
            for id in try reader.applicationsWithHistory() where only == nil || only == id {
                guard var history = try reader.history(of: id) else { continue }
                if let pack {
                    history.packs.removeAll { $0.id != pack }
                    // A failure before the manifest was available is the reason for each of its packs.
                    if history.packs.isEmpty, history.lastRun?.problem == nil { continue }
                }
                var report = HistoryReport(in: path, of: id, history: history)
                report.trust = trust.first { $0.application == id }
                report.location = session.location(of: path)
                // Only the next attempt of a pack that failed depends on its policy.
                let record =
                    history.packs.contains { $0.problem != nil }
                    ? try reader.storedManifest(for: id) : nil
                let manifest = record.flatMap { try? $0.manifest(of: id) }
                for index in report.packs.indices {
                    let id = report.packs[index].id
                    report.packs[index].isOnDemand = manifest?[id]?.policy == .onDemand
                    report.packs[index].currentVersion =
                        try reader.currentGeneration(of: id)?.content?.version
                    report.packs[index].pin = try reader.pin(of: id).map {
                        PinStatus(of: id, pin: $0)
                    }
                }
                reports.append(report)
            }
            return reports
        } catch {
            throw CommandFailure(error)
        }
    }
}

extension HistoryReport {
    /// Adds the daemon's tasks to the packs that they stage.
    fileprivate mutating func add(_ tasks: [TransferTask]) {
        for index in packs.indices {
            let pack = packs[index].id
            let task = tasks.first { task in
                guard let job = task.request.staging, task.request.isFor(pack) == true else {
                    return false
                }
                return job.container == container || job.application == application.text
            }
            packs[index].transfer = task?.id
        }
    }
}

/// Output of `why`.
struct WhyReport: Encodable, CustomStringConvertible {
    var applications: [HistoryReport]
    /// The daemon's waiting transfers.
    var transfers: [TaskReport]
    /// The pack that the options name, if any.
    var pack: PackID?
    /// A pack of the container with a similar identifier, for the case of a misspelling.
    var similarPack: PackID?

    private enum CodingKeys: String, CodingKey { case applications, transfers }

    var description: String {
        let waiting = transfers.isEmpty ? [] : ["Transfers that wait:"]
        return (applications.map(text) + waiting + transfers.map(\.description))
            .joined(separator: "\n")
    }

    private func text(of application: HistoryReport) -> String {
        guard let pack, application.packs.isEmpty else { return application.description }
        let question = similarPack.map { "; did you mean '\($0)'?" } ?? ""
        return "\(application)\n\(pack): nothing was decided yet\(question)"
    }
}

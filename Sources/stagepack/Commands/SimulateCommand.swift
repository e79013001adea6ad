import ArgumentParser
import FoundationEssentials
import StageContainer
import StageEngine
import StageModel
import StageSystem
import StagingService
import SystemPackage

struct SimulateCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "simulate",
        abstract: "Show what an event would do with each pack of an application, and why.",
        discussion: """
            Asks for the application's manifest and plans in a throw-away container: for 'install' \
            an empty one, for the other events one in which everything is staged that an \
            installation stages. With '--stage' the packs are fetched and published there, too. \
            Nothing of it stays.
            """
    )

    /// The simulated fault of the machine.
    enum Fault: String, ExpressibleByArgument, CaseIterable {
        case noSpace = "no-space"
        case noNetwork = "no-network"
        case metered
    }

    @Argument(help: "The event: install, update or periodic.") var event: RequestArgument

    @Option(
        help: ArgumentHelp("The registered application.", valueName: "id"),
        completion: ApplicationCompletion.kind
    )
    var app: String?

    @Option(
        help: ArgumentHelp("A registration's file, instead of --app.", valueName: "file"),
        completion: .file(extensions: ["json"])
    )
    var registration: String?

    @Option(
        help: ArgumentHelp(
            "The simulated fault: no-space, no-network or metered.",
            valueName: "fault"
        )
    )
    var fault: Fault?

    @Flag(help: "Stage essential packs only, as a hook does.") var essential = false
    @Flag(help: "Fetch the packs, too.") var stage = false

    @OptionGroup(title: "Network") var network: NetworkOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    var printsJSON: Bool { output.json }
    var messages: MessageOptions? { output.messages }

    mutating func validate() throws {
        if (app == nil) == (registration == nil) {
            throw ValidationError("Name the application: either --app or --registration.")
        }
        if stage, fault == .noSpace {
            throw ValidationError("--stage cannot be combined with --fault no-space.")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let folder = try Self.temporaryFolder()
        defer { folder.remove() }
        var network = network
        if fault == .noNetwork { network.isOffline = true }
        let session = try session(for: folder.path, network: network)
        if fault == .metered { try Console.note(meteredNote(session)) }
        let run = run(session, in: folder.path)
        let hints = SimulatedHints(folder: folder.path, fault: fault)
        let body = { @Sendable () async throws(CommandFailure) in
            do throws(CommandFailure) {
                var runs = try await run()
                runs.failures = runs.failures.map(hints.adapted)
                runs.reports = runs.reports.map(hints.adapted)
                return runs
            } catch {
                throw hints.adapted(error)
            }
        }
        return try await stage(output: output, within: nil, perform: body) { runs in
            runs.print(PlanReport(plans: runs.reports), asJSON: output.json)
        }
    }

    /// Creates the directory of the simulation.
    private static func temporaryFolder() throws(CommandFailure) -> TemporaryFolder {
        do throws(StagingFailure) {
            return try TemporaryFolder.make(logger: Log.logger)
        } catch {
            var failure = CommandFailure(error)
            // A privileged process ignores the variable.
            if !ProcessEnvironment.isPrivileged {
                failure.hint =
                    "set TMPDIR to a directory that this user can write, and that has free space"
            }
            throw failure
        }
    }

    /// Returns the effect of a metered link on the event, which depends on the conditions of the registration.
    private func meteredNote(_ session: Session) throws(CommandFailure) -> String {
        guard event.request == .periodic, !essential else {
            return
                "a metered link changes nothing: only packs of periodic runs that are not essential wait"
        }
        let request = try session.request(.event(event.request, essentialOnly: essential))
        return request.updateConditions.allowsExpensiveNetworkAccess
            ? "a metered link changes nothing: 'updateConditions' allow expensive network access"
            : "on a metered link, packs that are not essential wait (waits: metered): 'updateConditions'"
    }

    private func session(
        for path: FilePath,
        network: NetworkOptions
    ) throws(CommandFailure) -> Session {
        var source = SourceOptions()
        source.manifest = []
        source.root = nil
        source.app = app
        source.container = path.appending("container")
        source.applicationVersion = nil
        guard let registration else { return try Session(source, network: network) }
        let read = RegistrationFolders.Found(
            value: try Registration.read(named: registration),
            path: FilePath(registration)
        )
        return Session(registration: read, isInEffect: false, source: source, network: network)
    }

    /// Returns the run: one dry run for a plan; otherwise a real run, after an installation if the event is
    /// an update.
    private func run(
        _ session: Session,
        in path: FilePath
    ) -> @Sendable () async throws(CommandFailure) -> StagingRuns {
        let (request, essential, output, stage) = (event.request, essential, output, stage)
        let isOutOfSpace = fault == .noSpace
        return { () async throws(CommandFailure) -> StagingRuns in
            let packs = StagingRequest.Packs.event(request, essentialOnly: essential)
            var run = try StagingRun(packs, session: session, output: output)
            run.request.usesDaemon = false
            guard stage else {
                run.request.isDryRun = true
                run.request.assumptions.isInstalled = request != .install
                // The packs need not fit on the machine that simulates.
                run.request.assumptions.freeSpace = isOutOfSpace ? .zero : ByteCount(1 << 60)
                return try await run.run()
            }
            if request != .install {
                var before = run
                before.request.packs = .event(.install, essentialOnly: false)
                _ = try await before.run()
            }
            return try await run.run()
        }
    }
}

/// The hints of a simulation: they concern neither the container, which is removed at its end, nor the simulated fault.
private struct SimulatedHints: Sendable {
    let folder: FilePath
    let fault: SimulateCommand.Fault?

    /// Returns the failure with a hint for the user of the simulation.
    func adapted(_ failure: CommandFailure) -> CommandFailure {
        var failure = failure
        failure.hint = hint(failure.hint, status: failure.status.rawValue)
        return failure
    }

    /// Returns the report with hints for the user of the simulation.
    func adapted(_ report: StagingReport) -> StagingReport {
        var report = report
        adapt(&report.manifestProblem)
        adapt(&report.extensionProblem)
        for index in report.packs.indices { adapt(&report.packs[index].error) }
        return report
    }

    private func adapt(_ failure: inout FailureReport?) {
        guard let found = failure else { return }
        failure?.hint = hint(found.hint, status: found.status)
    }

    private func hint(_ hint: String?, status: Int32) -> String? {
        let simulated: ExitStatus? =
            switch fault {
            case .noSpace: .noSpace
            case .noNetwork: .unfinished
            case .metered, nil: nil
            }
        if let simulated, simulated.rawValue == status { return "this is the simulated fault" }
        return hint.flatMap { $0.contains(folder.string) ? nil : $0 }
    }
}

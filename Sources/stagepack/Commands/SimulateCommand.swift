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

    @Option(help: ArgumentHelp("The registered application.", valueName: "id"))
    var app: String?

    @Option(
        help: ArgumentHelp("A registration's file, instead of --app.", valueName: "file"),
        completion: .file(extensions: ["json"])
    )
    var registration: String?

    @Option(
        help: ArgumentHelp("What is wrong: no-space, no-network or metered.", valueName: "fault")
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
            throw ValidationError("--stage cannot be had with --fault no-space.")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let folder = try CommandFailure.wrapping { () throws(StagingFailure) in
            try TemporaryFolder.make(logger: Log.logger)
        }
        defer { folder.remove() }
        var network = network
        if fault == .noNetwork { network.isOffline = true }
        let session = try session(for: folder.path, network: network)
        if fault == .metered {
            Console.note(
                "a metered link changes nothing: packs are fetched over it like over others"
            )
        }
        let run = run(session, in: folder.path)
        let body = { @Sendable () async throws(CommandFailure) in try await run() }
        return try await stage(output: output, within: nil, perform: body) { reports in
            Console.print(PlanReport(plans: reports), asJSON: output.json)
        }
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
        let read = try CommandFailure.wrapping { () throws(StagingFailure) in
            let path = FilePath(registration)
            return RegistrationFolders.Found(
                value: try RegistrationFolders.read(path),
                path: path
            )
        }
        return Session(registration: read, source: source, network: network)
    }

    /// Returns the run: one dry run for a plan; otherwise a real run, after an installation if the event is
    /// an update.
    private func run(
        _ session: Session,
        in path: FilePath
    ) -> @Sendable () async throws(CommandFailure) -> [StagingReport] {
        let (request, essential, output, stage) = (event.request, essential, output, stage)
        let isOutOfSpace = fault == .noSpace
        return { () async throws(CommandFailure) -> [StagingReport] in
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

import ArgumentParser
import Glibc
import StageEngine
import StageModel
import StagingService
import SystemPackage

struct FetchCommand: NetworkedSubcommand, ChangingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "fetch",
        abstract: "Stage the newest version of some packs, regardless of their policies."
    )

    @Argument(
        help: "The packs.",
        completion: PackCompletion.kind,
        transform: PackArgument.parse
    )
    var packs: [PackID] = []

    @Flag(help: "Download and store the manifest instead of packs.")
    var manifestOnly = false

    @Option(
        help: ArgumentHelp(
            "With --container: another container that readers search. A pack is not staged if readers "
                + "would still use the copy there.",
            valueName: "dir"
        ),
        completion: .directory,
        transform: SourceOptions.directory
    )
    var beside: [FilePath] = []

    @Option(help: ArgumentHelp("The seconds after which to stop.", valueName: "seconds"))
    var deadline: Seconds?

    @Flag(
        help:
            "Interrupted by SIGINT, cancel the daemon's transfer instead of leaving it to the daemon."
    )
    var withdraw = false

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup(title: "Network") var network: NetworkOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    var printsJSON: Bool { output.json }
    var messages: MessageOptions? { output.messages }

    func validate() throws {
        if manifestOnly, !packs.isEmpty {
            throw ValidationError("--manifest-only cannot be combined with packs.")
        }
        if !manifestOnly, packs.isEmpty {
            throw ValidationError("expected the packs, or --manifest-only.")
        }
        if !beside.isEmpty, source.container == nil {
            throw ValidationError("--beside requires --container.")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source, network: network)
        var run = try StagingRun(.named(Set(packs)), session: session, output: output)
        run.request.target.otherContainers = beside
        if withdraw {
            run.request.withdrawsWhenCancelled = { InterruptingSignals.shared.hasArrived(SIGINT) }
        }
        let body = { @Sendable [manifestOnly, run] () async throws(CommandFailure) in
            manifestOnly ? try await run.fetchManifests() : try await run.run()
        }
        return try await stage(output: output, within: deadline?.duration, perform: body) {
            runs in
            if output.json || !output.quiet {
                runs.print(Listing(elements: runs.reports, name: "runs"), asJSON: output.json)
            }
        }
    }
}

import ArgumentParser
import StageEngine
import StageModel
import StagingService

struct FetchCommand: SourcedSubcommand {
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

    @Flag(help: "Instead of packs: ask for the manifest and keep it.")
    var manifestOnly = false

    @Option(help: ArgumentHelp("The seconds after which to stop.", valueName: "seconds"))
    var deadline: Seconds?

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup(title: "Network") var network: NetworkOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    var printsJSON: Bool { output.json }
    var messages: MessageOptions? { output.messages }

    func validate() throws {
        if manifestOnly, !packs.isEmpty {
            throw ValidationError("--manifest-only and packs exclude each other.")
        }
        if !manifestOnly, packs.isEmpty {
            throw ValidationError("expected the packs, or --manifest-only.")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source, network: network)
        let run = try StagingRun(.named(Set(packs)), session: session, output: output)
        let body = { @Sendable [manifestOnly] () async throws(CommandFailure) in
            manifestOnly ? try await run.fetchManifests() : try await run.run()
        }
        return try await stage(output: output, within: deadline?.duration, perform: body) {
            reports in
            if output.json || !output.quiet {
                Console.print(Listing(elements: reports, name: "runs"), asJSON: output.json)
            }
        }
    }
}

import ArgumentParser
import StageEngine
import StageModel

struct PrefetchCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "prefetch",
        abstract: "Stage the packs that their policies call for."
    )

    @Flag(help: "Stage only the packs that are essential.")
    var essential = false

    @Option(
        help: ArgumentHelp(
            "The event: install, update or periodic. Without it: install until every pack "
                + "essential to it is staged, then update.",
            valueName: "event"
        )
    )
    var event: RequestArgument?

    @Option(help: ArgumentHelp("The seconds after which to stop.", valueName: "seconds"))
    var deadline: Double?

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup(title: "Network") var network: NetworkOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    var printsJSON: Bool { output.json }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let run = StagingRun(session: try Session(source, network), output: output)
        let (event, essential) = (event?.request, essential)
        let body = { @Sendable () async throws(CommandFailure) in
            try await run.run { planner in
                .event(event ?? planner.request, essentialOnly: essential)
            }
        }
        return try await stage(output, within: deadline.map { .seconds($0) }, body) { reports in
            if output.json || !output.quiet {
                Console.print(Listing(elements: reports), asJSON: output.json)
            }
        }
    }
}

import ArgumentParser
import StageEngine
import StageModel

struct PlanCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "plan",
        abstract: "Show what prefetch would do with each pack, and why."
    )

    @Flag(help: "Plan for the packs that are essential only.")
    var essential = false

    @Option(
        help: ArgumentHelp("The event: install, update or periodic.", valueName: "event")
    )
    var event: RequestArgument?

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup(title: "Network") var network: NetworkOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    var printsJSON: Bool { output.json }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let run = StagingRun(
            session: try Session(source, network),
            output: output,
            wanted: .event(event?.request, essentialOnly: essential),
            isDryRun: true
        )
        let body = { @Sendable () async throws(CommandFailure) in try await run.run() }
        return try await stage(output, within: nil, body) { reports in
            Console.print(PlanReport(plans: reports), asJSON: output.json)
        }
    }
}

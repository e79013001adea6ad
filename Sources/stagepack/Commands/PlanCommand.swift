import ArgumentParser
import StageEngine
import StageModel
import StagingService

struct PlanCommand: NetworkedSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "plan",
        abstract: "Show what prefetch would do with each pack, and why."
    )

    @Flag(help: "Plan for essential packs only.")
    var essential = false

    @Option(
        help: ArgumentHelp("The event: install, update or periodic.", valueName: "event")
    )
    var event: RequestArgument?

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup(title: "Network") var network: NetworkOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    var printsJSON: Bool { output.json }
    var messages: MessageOptions? { output.messages }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let packs = StagingRequest.Packs.event(event?.request, essentialOnly: essential)
        let session = try Session(source, network: network)
        var run = try StagingRun(packs, session: session, output: output)
        run.request.isDryRun = true
        let body = { @Sendable [run] () async throws(CommandFailure) in try await run.run() }
        return try await stage(output: output, within: nil, perform: body) { runs in
            let plans = runs.reports.map { $0.located(by: session.target) }
            runs.print(PlanReport(plans: plans), asJSON: output.json)
        }
    }
}

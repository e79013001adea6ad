import ArgumentParser
import StageEngine
import StageModel

struct FetchCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "fetch",
        abstract: "Stage the newest version of some packs, whatever their policy."
    )

    @Argument(help: "The packs.", transform: PackArgument.parse)
    var packs: [PackID]

    @Option(help: ArgumentHelp("The seconds after which to stop.", valueName: "seconds"))
    var deadline: Seconds?

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup(title: "Network") var network: NetworkOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    var printsJSON: Bool { output.json }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let run = StagingRun(
            session: try Session(source, network),
            output: output,
            wanted: .packs(Set(packs))
        )
        let body = { @Sendable () async throws(CommandFailure) in try await run.run() }
        return try await stage(output, within: deadline?.duration, body) { reports in
            if output.json || !output.quiet {
                Console.print(Listing(elements: reports), asJSON: output.json)
            }
        }
    }
}

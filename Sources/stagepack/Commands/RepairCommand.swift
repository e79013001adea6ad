import ArgumentParser
import StageEngine
import StageModel
import StagingService

struct RepairCommand: SourcedSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "repair",
        abstract: "Verify staged packs and stage those again that are damaged.",
        discussion: "The damaged generation is served until the new one takes its place."
    )

    @Argument(help: "The packs; all staged ones if none is named.", transform: PackArgument.parse)
    var packs: [PackID] = []

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup(title: "Network") var network: NetworkOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    var printsJSON: Bool { output.json }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source, network)
        try session.checkNetworkFiles()
        let reports = try await VerifyReport.make(of: packs, in: try session.existingContainer())
        let damaged = Set(reports.filter { !$0.differences.isEmpty }.map(\.pack))
        guard !damaged.isEmpty else {
            if !output.quiet { Console.print(Listing(elements: reports), asJSON: output.json) }
            return .success
        }
        let run = try StagingRun(.damaged(damaged), session, output)
        let body = { @Sendable () async throws(CommandFailure) in try await run.run() }
        return try await stage(output, within: nil, body) { reports in
            if output.json || !output.quiet {
                Console.print(Listing(elements: reports), asJSON: output.json)
            }
        }
    }
}

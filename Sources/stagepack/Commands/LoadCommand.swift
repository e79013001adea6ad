import ArgumentParser
import StageEngine
import StageModel
import StagePack

struct LoadCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "load",
        abstract: "Print the directory of a pack, fetching it first if need be."
    )

    @Argument(help: "The pack.", transform: PackArgument.parse)
    var pack: PackID

    @Option(help: ArgumentHelp("The seconds after which to stop.", valueName: "seconds"))
    var deadline: Seconds?

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup(title: "Network") var network: NetworkOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    var printsJSON: Bool { output.json }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source, network)
        if let path = try session.stagedPath(of: pack) {
            Console.print(PathReport(pack: pack, path: path), asJSON: output.json)
            return .success
        }
        guard !session.isOffline else { throw .notStaged(pack) }
        let id = pack
        let run = StagingRun(session: session, output: output, wanted: .packs([id]))
        let body = { @Sendable () async throws(CommandFailure) in try await run.run() }
        var container: String?
        var failure: FailureReport?
        let status = try await stage(output, within: deadline?.duration, body) {
            reports in
            container = reports.first { $0.packs.contains { $0.id == id } }?.container
            failure = reports.flatMap(\.failures).first
        }
        // The pack may be there although the manifest's server did not answer.
        guard let path = try session.stagedPath(of: pack, in: container) else {
            guard status != .success else { throw .notStaged(pack) }
            if output.json, let failure { Console.reportJSON(failure) }
            return status
        }
        Console.print(PathReport(pack: pack, path: path), asJSON: output.json)
        return .success
    }
}

/// What `load` and `path` print.
struct PathReport: Codable, CustomStringConvertible {
    var pack: PackID
    var path: String

    var description: String { path }
}

import ArgumentParser
import StageEngine
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

struct LoadCommand: NetworkedSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "load",
        abstract: "Print the directory of a pack, fetching it first if need be.",
        discussion: """
            With '--file' the path of one file of the pack is printed. Of an indexed pack that is not \
            staged only that file is fetched, and stays until the manifest has another version.
            """
    )

    @Argument(
        help: "The pack.",
        completion: PackCompletion.kind,
        transform: PackArgument.parse
    )
    var pack: PackID

    @Option(
        help: ArgumentHelp("Print the path of this file of the pack.", valueName: "path"),
        transform: Self.file
    )
    var file: ContentPath?

    @Option(help: ArgumentHelp("The seconds after which to stop.", valueName: "seconds"))
    var deadline: Seconds?

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup(title: "Network") var network: NetworkOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    var printsJSON: Bool { output.json }
    var messages: MessageOptions? { output.messages }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source, network: network)
        try session.network?.checkFiles()
        if let path = try session.stagedPath(of: pack) {
            if let file { return try printStaged(file, below: path, in: session) }
            Console.print(session.report(of: path, in: pack), asJSON: output.json)
            return .success
        }
        guard !session.isOffline else {
            guard let file, let path = try session.fetchedPath(of: file, in: pack) else {
                throw notStagedOffline
            }
            Console.print(session.report(of: path, in: pack), asJSON: output.json)
            return .success
        }
        if let failure = source.failureForDpkgRoot { throw failure }
        if let file { return try await fetch(file, in: session) }
        let id = pack
        let run = try StagingRun(.named([id]), session: session, output: output)
        let body = { @Sendable () async throws(CommandFailure) in try await run.run() }
        var container: String?
        var failure: FailureReport?
        let status = try await stage(output: output, within: deadline?.duration, perform: body) {
            runs in
            container = runs.reports.first { $0.packs.contains { $0.id == id } }?.container
            failure = runs.mostSevere
            failure?.transfer = runs.reports.lazy.compactMap(\.transfer).first
        }
        // The pack may be staged even if the manifest's server did not answer.
        guard let path = try session.stagedPath(of: pack, in: container) else {
            guard status != .success else { throw .notStaged(pack) }
            if output.json, let failure { Console.reportJSON(failure) }
            return status
        }
        Console.print(session.report(of: path, in: pack), asJSON: output.json)
        return .success
    }

    /// The failure for a pack, or a file of it, that only the network provides; the hint is the same command with it.
    private var notStagedOffline: CommandFailure {
        var failure = CommandFailure.notStaged(pack)
        // Without a source, the command would fail with the network, too.
        if HintSource.current.staging("load", pack.text) != nil,
            let command = StagingAdvice.onlineCommand
        {
            failure.hint = "\(command) to fetch it"
        }
        return failure
    }

    private func printStaged(
        _ file: ContentPath,
        below path: String,
        in session: Session
    ) throws(CommandFailure) -> ExitStatus {
        let filePath = FilePath(path).pushing(FilePath(file.text))
        guard FileStatus.exists(filePath) else {
            throw CommandFailure(.noSuchFile(file, .isMissing), pack: pack)
        }
        // Throws the same error as for a directory of a pack that is not staged.
        guard (try? Directory.open(filePath)) == nil else {
            throw CommandFailure(.noSuchFile(file, .isDirectory), pack: pack)
        }
        Console.print(session.report(of: filePath.string, in: pack), asJSON: output.json)
        return .success
    }

    private func fetch(
        _ file: ContentPath,
        in session: Session
    ) async throws(CommandFailure) -> ExitStatus {
        let run = try StagingRun(.named([pack]), session: session, output: output)
        let id = pack
        let (result, interruption) = await withInterruption(after: deadline?.duration) {
            () async -> Result<FilePath, CommandFailure> in
            do throws(CommandFailure) {
                return .success(try await run.fetchFile(file, of: id))
            } catch {
                return .failure(error)
            }
        }
        switch result {
        case .success(let path):
            Console.print(session.report(of: path.string, in: pack), asJSON: output.json)
            return .success
        case .failure(let failure):
            throw failure.asInterrupted(by: interruption)
        }
    }

    private static func file(_ text: String) throws -> ContentPath {
        do throws(ValueError) {
            return try ContentPath(text)
        } catch {
            throw ValidationError(error.description)
        }
    }
}

/// Output of `load` and `path`.
struct PathReport: Codable, CustomStringConvertible {
    var pack: PackID
    var path: String
    /// The owner of the container, user or system; `nil` for a container at another path.
    var location: ContainerLocation?

    var description: String { path }
}

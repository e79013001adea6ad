import ArgumentParser
import StageModel

struct PathCommand: SourcedSubcommand, ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "path",
        abstract: "Print the directory of a pack if it is staged; else end with status 2."
    )

    @Argument(
        help: "The pack.",
        completion: PackCompletion.kind,
        transform: PackArgument.parse
    )
    var pack: PackID

    @OptionGroup(title: "Source") var source: SourceOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source)
        guard let path = try session.stagedPath(of: pack) else {
            try session.checkNamedContainer()
            throw .notStaged(pack)
        }
        Console.print(session.report(of: path, in: pack), asJSON: json)
        return .success
    }
}

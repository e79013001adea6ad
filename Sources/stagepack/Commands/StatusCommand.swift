import ArgumentParser
import StageContainer
import StageModel

struct StatusCommand: SourcedSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Show which packs are staged and where, without using the network.",
        discussion: """
            Of an application the user's and the system's container are shown together: of each pack \
            the copy that 'path' names. Without --app and --container, every application that is \
            registered is shown.
            """
    )

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup var scope: ScopeOptions
    @Flag(help: "Print the result as JSON.") var json = false

    var printsJSON: Bool { json }

    mutating func validate() throws { try scope.check(with: source) }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let scopes = try ContainerScopes(source)
        try scopes.checkForApplications()
        var report = StatusReport()
        for scope in scopes.scopes {
            let part = try StatusReport.Part(scope)
            if part.isEmpty, !scopes.isAll, let own = scope.own {
                throw CommandFailure(ContainerError.missing(own))
            }
            report.parts.append(part)
        }
        Console.print(report, asJSON: json)
        return scopes.conclude(.success)
    }
}

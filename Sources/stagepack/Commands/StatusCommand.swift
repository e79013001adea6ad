import ArgumentParser
import StageContainer
import StageModel

struct StatusCommand: ScopedSubcommand, ReportingSubcommand {
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
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        var scopes = try ContainerScopes(source)
        let report = try StatusReport(of: &scopes)
        let status = scopes.conclude(report, asJSON: json)
        scopes.noteNoApplication(asJSON: json)
        let conflicts = report.parts.flatMap(\.conflicts)
        for conflict in conflicts { Console.note("stagepack: warning: \(conflict.text)") }
        if !conflicts.isEmpty { Console.note("hint: \(OfferConflict.hint)") }
        return status
    }
}

extension StatusReport {
    /// Reads the packs of the containers, for every command that shows packs; records the failures of containers that cannot
    /// be read, if the options name none.
    ///
    /// - Throws: ``CommandFailure`` if the container that the options name cannot be read or does not exist.
    init(of scopes: inout ContainerScopes) throws(CommandFailure) {
        for scope in scopes.scopes {
            do throws(CommandFailure) {
                parts.append(try Part(scope, in: scopes.view(of: scope)))
            } catch {
                try scopes.record(error)
            }
        }
    }

    /// The packs of all containers.
    var packs: [PackStatus] { parts.flatMap(\.packs) }

    /// The manifests of all containers.
    var manifests: [ManifestStatus] { parts.flatMap(\.manifests) }
}

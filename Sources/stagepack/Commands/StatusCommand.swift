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
        let report = try StatusReport.make(of: &scopes)
        return scopes.conclude(report, asJSON: json)
    }
}

extension StatusReport {
    /// Reads the packs of the containers, for every command that shows packs; records the failures of containers that cannot
    /// be read.
    ///
    /// - Throws: ``CommandFailure`` as ``init(of:)`` does, without a container of all applications that cannot be read.
    static func make(of scopes: inout ContainerScopes) throws(CommandFailure) -> StatusReport {
        try scopes.checkForApplications()
        var report = StatusReport()
        for scope in scopes.scopes {
            do throws(CommandFailure) {
                report.parts.append(try Part(scope, in: scopes.view(of: scope)))
            } catch {
                try scopes.record(error)
            }
        }
        return report
    }

    /// Reads the packs of the containers.
    ///
    /// - Throws: ``CommandFailure`` if no application is registered and no container is named, or if none of
    ///   the containers that the options name exists.
    init(of scopes: ContainerScopes) throws(CommandFailure) {
        try scopes.checkForApplications()
        for scope in scopes.scopes { parts.append(try Part(scope, in: scopes.view(of: scope))) }
    }

    /// The packs of all containers.
    var packs: [PackStatus] { parts.flatMap(\.packs) }

    /// The manifests of all containers.
    var manifests: [ManifestStatus] { parts.flatMap(\.manifests) }
}

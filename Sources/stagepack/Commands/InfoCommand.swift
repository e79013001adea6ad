import ArgumentParser
import FoundationEssentials
import StageContainer
import StageDisplay
import StageEngine
import StageModel
import StagePack
import StagingService
import SystemPackage

struct InfoCommand: ScopedSubcommand, ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "info",
        abstract: "Show everything about a pack, without using the network."
    )

    @Argument(
        help: "The pack.",
        completion: PackCompletion.kind,
        transform: PackArgument.parse
    )
    var pack: PackID

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup var scope: ScopeOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        var scopes = try ContainerScopes(source)
        try scopes.checkForApplications()
        let report = try StatusReport(of: &scopes)
        guard let status = report.packs.first(where: { $0.id == pack }) else {
            try scopes.checkForFailures()
            guard report.hasManifest else { throw .noManifest(of: scopes) }
            throw CommandFailure(StagingFailure(StageError.unknownPack(pack)))
        }
        return scopes.conclude(PackInformation(status), asJSON: json)
    }
}

extension CommandFailure {
    /// The failure for a pack of applications whose manifests are not known yet.
    fileprivate static func noManifest(of scopes: ContainerScopes) -> CommandFailure {
        let applications = scopes.scopes.flatMap(\.applications)
        let name = applications.count == 1 ? " of '\(applications[0])'" : ""
        let command: String? =
            if let first = applications.first {
                applications.count == 1
                    ? HintSource.current.ofApplication(first).staging("prefetch")
                    : HintSource.quoted(["prefetch", "--all"])
            } else {
                HintSource.current.staging("prefetch")
            }
        return CommandFailure(
            status: .unknownPack,
            message: "no manifest\(name) was accepted yet",
            hint: command.map { "run \($0)" },
            retryAdvice: .later
        )
    }
}

/// Output of `info`.
private struct PackInformation: Encodable, CustomStringConvertible {
    var status: StatusReport.PackStatus
    /// The directory with the files; `nil` for a pack that is not staged.
    var directory: String?

    init(_ status: StatusReport.PackStatus) {
        self.status = status
        guard let container = status.container else { return }
        let path = FilePath(container).appending(ContainerLayout.packs)
        directory = path.appending(status.id.text).string
    }

    private enum CodingKeys: CodingKey { case directory }

    func encode(to encoder: any Encoder) throws {
        try status.encode(to: encoder)
        var members = encoder.container(keyedBy: CodingKeys.self)
        try members.encodeIfPresent(directory, forKey: .directory)
    }

    var description: String {
        let suffix = status.location.map { " (\($0.rawValue))" } ?? ""
        let rows: [(String, String?)] = [
            ("pack", status.id.text),
            ("state", status.text),
            ("version", status.version.map(String.init)),
            ("offered", status.offeredVersion.map { "version \($0)" }),
            ("policy", status.policy),
            ("size", status.installedSize.map(\.description)),
            ("download", status.downloadSize.map(\.description)),
            ("staged", status.stagedAt.map { InternetTime($0).text }),
            ("from", status.source?.withoutUser.forDisplay()),
            ("directory", directory?.forDisplay()),
            ("container", status.container.map { $0.forDisplay() + suffix }),
        ]
        return rows.compactMap { name, value in
            value.map { name.filling(columns: 10) + " " + $0 }
        }.joined(separator: "\n")
    }
}

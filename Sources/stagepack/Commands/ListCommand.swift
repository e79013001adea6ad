import ArgumentParser
import FoundationEssentials
import StageModel
import StagePack

struct ListCommand: ScopedSubcommand, ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "ls",
        abstract: "List the packs that are staged."
    )

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup var scope: ScopeOptions
    @Flag(help: "List also the packs that are offered and not staged.") var missing = false
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        var scopes = try ContainerScopes(source)
        let report = try StatusReport(of: &scopes)
        let shown = report.packs.filter { missing || $0.state != .missing }
        let status = scopes.conclude(PackListing(packs: shown), asJSON: json)
        if report.parts.allSatisfy(\.isEmpty) { scopes.noteNothingStaged(asJSON: json) }
        return status
    }
}

/// Output of `ls`.
private struct PackListing: Encodable, CustomStringConvertible {
    var packs: [StatusReport.PackStatus]

    var description: String {
        guard !packs.isEmpty else { return "" }
        // Omits the column if no pack is in the user's or the system's container.
        let hasLocations = packs.contains { $0.location != nil }
        let rows = packs.map { pack in
            [pack.id.text, pack.version.map(String.init) ?? "-"]
                + (hasLocations ? [pack.location?.rawValue ?? "-"] : [])
                + ["\(pack.installedSize ?? .zero)", pack.stagedAt?.age ?? "not staged"]
        }
        let head = ["pack", "version"] + (hasLocations ? ["where"] : []) + ["size", "staged"]
        return Table(head: head, rows: rows).description
    }
}

extension Date {
    /// The time since this instant, for people: `2 hours ago`.
    var age: String {
        let seconds = max(1, Date().timeIntervalSince(self).rounded(.up))
        guard seconds >= 172_800 else { return "\(Duration.seconds(seconds).inWords) ago" }
        return "\(Int(seconds / 86_400).quantity(of: "day")) ago"
    }
}

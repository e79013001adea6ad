import ArgumentParser
import StageModel
import StageSystem
import StagingService
import SystemPackage

struct AppListCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "List the applications that are registered.",
        discussion: """
            Ends with status 3 if a registration is not valid, or if a file is ignored because its \
            name is not the identifier of an application and '.json'.
            """
    )

    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        let applications = try CommandFailure.wrapping { () throws(StagingFailure) in
            try folders.applications()
        }
        let rows = applications.map { id in
            do throws(StagingFailure) {
                return RegistrationReport(try folders.registration(of: id))
            } catch {
                return RegistrationReport(id, failure: CommandFailure(error))
            }
        }
        let misnamed = folders.misnamedFiles()
        var listing = RegistrationListing(applications: rows)
        listing.ignored = misnamed.isEmpty ? nil : misnamed.map(\.path.string)
        Console.print(listing, asJSON: json)
        if !json { for file in misnamed { Console.note("stagepack: warning: \(file)") } }
        let isValid = misnamed.isEmpty && rows.allSatisfy { $0.problem == nil }
        return isValid ? .success : .findings
    }
}

/// Output of `app list`.
struct RegistrationListing: Encodable, CustomStringConvertible {
    var applications: [RegistrationReport]
    /// The files that are not used because of their names; `nil` if there are none.
    var ignored: [String]?

    var description: String {
        guard !applications.isEmpty else { return "" }
        let rows = applications.map { row in
            [
                row.id.text, row.version ?? "-", row.group?.text ?? "-",
                row.problem.map { "not valid: \($0.message)" } ?? row.file ?? "-",
            ].map(\.escapedForDisplay)
        }
        return Table(head: ["application", "version", "group", "registered in"], rows: rows)
            .description
    }
}

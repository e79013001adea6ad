import ArgumentParser
import StageModel
import StageSystem
import StagingService
import SystemPackage

struct AppShowCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "show",
        abstract: "Print the registration that applies to an application."
    )

    @Argument(help: "The application.", completion: ApplicationCompletion.kind) var id: String
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        let found: RegistrationFolders.Found
        do throws(StagingFailure) {
            found = try folders.registration(named: id)
        } catch {
            throw CommandFailure(registration: error)
        }
        let text = String(decoding: found.value.json(), as: UTF8.self).jsonForDisplay
        if json {
            Console.print(RegistrationReport(found), asJSON: true)
        } else {
            Console.say(found.path.string.escapedForDisplay)
            for path in found.overridden {
                Console.say("instead of \(path.string.escapedForDisplay)")
            }
            Console.say(text.hasSuffix("\n") ? String(text.dropLast()) : text)
        }
        return .success
    }
}

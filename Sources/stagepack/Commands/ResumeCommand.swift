import ArgumentParser
import StageControl
import StageModel

struct ResumeCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "resume",
        abstract: "Resume paused transfers of the daemon.",
        discussion: "'stagepack tasks' has their numbers. They resume where they stopped."
    )

    @OptionGroup(title: "Transfers") var selection: TaskSelection
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        try await selection.change(to: .unpaused, asJSON: json)
    }
}

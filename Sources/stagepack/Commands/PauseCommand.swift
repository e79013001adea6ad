import ArgumentParser
import StageControl
import StageModel

struct PauseCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "pause",
        abstract: "Pause transfers of the daemon, also those that their applications resume.",
        discussion: "'stagepack tasks' has their numbers. What was received is kept."
    )

    @OptionGroup(title: "Transfers") var selection: TaskSelection
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        try await selection.change(to: .paused, asJSON: json)
    }
}

import ArgumentParser
import StageControl
import StageModel

struct CancelCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "cancel",
        abstract: "Cancel transfers of the daemon.",
        discussion: """
            'stagepack tasks' has their numbers. What was received is removed, except by stagings, which \
            keep it in the container for the next one.
            """
    )

    @OptionGroup(title: "Transfers") var selection: TaskSelection
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        try await selection.change(to: .cancelled, asJSON: json)
    }
}

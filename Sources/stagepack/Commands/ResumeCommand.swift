import ArgumentParser
import StageControl

struct ResumeCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "resume",
        abstract: "Let paused transfers of the daemon go on.",
        discussion: "'stagepack tasks' has their numbers. They go on where they were."
    )

    @OptionGroup(title: "Transfers") var selection: TaskSelection
    @Flag(help: "Print the result as JSON.") var json = false

    var printsJSON: Bool { json }

    func perform() async throws(CommandFailure) -> ExitStatus {
        try await selection.change(to: .unpaused, asJSON: json)
        return .success
    }
}

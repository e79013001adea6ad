import ArgumentParser
import StageModel
import StagePublish

struct TemplateCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "template",
        abstract: "Write a packaging recipe to begin with.",
        discussion: "The comments in it describe all members; 'stagepack package' reads it."
    )

    @OptionGroup var file: NewFileOptions
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    var messages: MessageOptions? { messageOptions }
    var printsJSON: Bool { false }

    func perform() async throws(CommandFailure) -> ExitStatus {
        try file.write(Array(RecipeTemplate.text.utf8))
        return .success
    }
}

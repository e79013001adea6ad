import ArgumentParser

struct KeysCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "keys",
        abstract: "Make and show the keys of signed metadata.",
        subcommands: [
            KeysInitCommand.self, KeysGenerateCommand.self, KeysShowCommand.self,
        ]
    )
}

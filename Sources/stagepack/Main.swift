import ArgumentParser

@main
struct StagePackCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stagepack",
        subcommands: [ServeCommand.self]
    )
}

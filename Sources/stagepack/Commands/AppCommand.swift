import ArgumentParser

struct AppCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "app",
        abstract: "List, show, register and unregister applications.",
        subcommands: [
            AppListCommand.self, AppShowCommand.self, AppValidateCommand.self,
            AppRegisterCommand.self, AppUnregisterCommand.self,
        ]
    )
}

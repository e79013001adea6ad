import ArgumentParser

struct ManifestCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "manifest",
        abstract: "Keep a manifest, and check it before it is published.",
        subcommands: [
            ManifestCreateCommand.self, ManifestAddCommand.self, ManifestRemoveCommand.self,
            ManifestSetPolicyCommand.self, ManifestLintCommand.self,
        ]
    )
}

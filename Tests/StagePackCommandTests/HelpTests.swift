import FoundationEssentials
import StageTesting
import SystemPackage
import Testing

struct HelpTests {
    /// The commands, the program itself first.
    static let commands = [
        "", "prefetch", "fetch", "plan", "load", "path", "ls", "info", "status", "du", "version",
        "verify", "repair", "rollback",
        "pin", "remove", "gc", "doctor", "why", "metrics", "tasks", "tasks list", "tasks add",
        "tasks clear",
        "watch",
        "cancel", "pause", "resume",
        "app", "app list", "app show", "app validate", "app register", "app unregister",
        "simulate", "package", "delta", "diff", "template", "manifest", "manifest create",
        "manifest add",
        "manifest remove", "manifest set-policy", "manifest lint", "store", "store verify",
        "store gc",
        "serve", "keys", "keys init", "keys generate",
        "keys show", "sign", "refresh", "rotate",
    ]

    private static func name(_ command: String) -> String {
        command.isEmpty ? "stagepack" : command.replacing(" ", with: "-")
    }

    private static func golden(_ command: String) -> URL {
        URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "Golden/\(name(command)).txt")
    }

    /// Compares a help text with its golden file, from which `Scripts/command-reference` makes a page of the documentation.
    private func compare(_ ending: Program.Ending, withGoldenOf command: String) throws {
        #expect(ending.status == 0)
        #expect(ending.error == "")
        let golden = Self.golden(command)
        if ProcessInfo.processInfo.environment["RENEW_GOLDEN"] == "1" {
            try Data(ending.output.utf8).write(to: golden)
        }
        let expected = String(decoding: try Data(contentsOf: golden), as: UTF8.self)
        #expect(
            ending.output == expected,
            """
            read the new text, then renew it: \
            RENEW_GOLDEN=1 swift test --filter HelpTests && Scripts/command-reference
            """
        )
    }

    @Test(arguments: commands)
    func theHelpOfACommandIsAsItWasRead(command: String) async throws {
        let arguments = command.split(separator: " ").map(String.init) + ["--help"]
        try compare(try await Program().run(arguments), withGoldenOf: command)
    }

    @Test func theHelpOfTheDaemonIsAsItWasRead() async throws {
        let daemon = try BuiltProgram.path(of: "stagepackd")
        let ending = try await Program(wrapper: [daemon.string]).run(["--help"])
        try compare(ending, withGoldenOf: "stagepackd")
    }

    @Test func everyCommandHasAGoldenFile() async throws {
        let help = try await Program().run(["--help"]).output
        let listed = help.split(separator: "\n").compactMap { line -> String? in
            guard line.hasPrefix("  "), let name = line.dropFirst(2).split(separator: " ").first,
                !line.hasPrefix("   "), !line.hasPrefix("  See "), !name.hasPrefix("-")
            else { return nil }
            return String(name)
        }
        #expect(
            listed.sorted() == Self.commands.filter { !$0.isEmpty && !$0.contains(" ") }.sorted()
        )
    }
}

import StageTesting
import SystemPackage
import Testing

/// The synopsis of the manual page, compared with the help texts, which `HelpTests` compares with the program.
struct ManualTests {
    /// The names in the synopsis of a command.
    private struct Synopsis {
        /// The options, such as `--json` or `-o`.
        var options: Set<String> = []
        /// The options that may be given more than once.
        var repeated: Set<String> = []
        /// The groups of options that have a section of their own.
        var groups: Set<String> = []
    }

    /// An option of a help text.
    private struct Option {
        /// The short name, if there is one, and the long name.
        var names: [String]
        /// The heading of the option's group.
        var heading: String
    }

    private static let sources = FilePath(#filePath).removingLastComponent().removingLastComponent()
        .removingLastComponent()
    /// The groups of the synopsis, by the headings of the help.
    private static let groups = [
        "SOURCE": "source", "NETWORK": "network", "OUTPUT": "output", "KEYS": "keys",
    ]
    /// The options of every command, which have a section of their own.
    private static let common: Set<String> = [
        "--color", "--verbose", "--quiet", "--version", "--help",
    ]
    /// The commands, without those that only have subcommands.
    private static let commands = HelpTests.commands.filter { command in
        !command.isEmpty && !HelpTests.commands.contains { $0.hasPrefix(command + " ") }
    }

    /// Returns the synopsis of each command: lines of mdoc(7) below '.Nm' and '.Cm'.
    private static func synopses() throws -> [String: Synopsis] {
        let manual = try text(of: sources.appending("deploy/man/stagepack.1"))
        let lines = manual.split(separator: "\n").drop { $0 != ".Sh SYNOPSIS" }.dropFirst()
        var found: [String: Synopsis] = [:]
        var command = ""
        for line in lines.prefix(while: { !$0.hasPrefix(".Sh ") }) {
            let words = line.dropFirst().split(separator: " ").map(String.init)
            if words.first == "Cm" { command = words.dropFirst().joined(separator: " ") }
            var option = ""
            for (word, next) in zip(words, words.dropFirst() + [""]) {
                switch word {
                case "Fl":
                    option = "-" + next
                    found[command, default: Synopsis()].options.insert(option)
                case "Ar" where groups.values.contains(next):
                    found[command, default: Synopsis()].groups.insert(next)
                case "...":
                    found[command, default: Synopsis()].repeated.insert(option)
                default: break
                }
            }
        }
        return found
    }

    /// Returns the options of a help text.
    private static func options(in help: String) -> [Option] {
        var heading = ""
        var options: [Option] = []
        for line in help.split(separator: "\n") {
            if let end = line.firstIndex(of: ":"), line[..<end].allSatisfy(\.isUppercase) {
                heading = String(line[..<end])
            }
            guard line.hasPrefix("  -") else { continue }
            let names = line.split(separator: " ").filter { $0.hasPrefix("-") }
                .prefix(line.hasPrefix("  --") ? 1 : 2)
            let option = Option(
                names: names.map { String($0.replacing(",", with: "")) },
                heading: heading
            )
            options.append(option)
        }
        return options
    }

    @Test(arguments: commands)
    func theSynopsisNamesTheOptionsOfTheHelp(command: String) throws {
        let name = command.replacing(" ", with: "-")
        let golden = "Tests/StagePackCommandTests/Golden/\(name).txt"
        let help = try text(of: Self.sources.appending(golden))
        let synopsis = try #require(try Self.synopses()[command])
        let options = Self.options(in: help)
        let covered = options.filter { option in
            Self.groups[option.heading].map(synopsis.groups.contains) == true
        }
        let missing = options.filter { option in
            !Self.common.isSuperset(of: option.names.filter { $0.hasPrefix("--") })
                && !covered.contains { $0.names == option.names }
                && synopsis.options.isDisjoint(with: option.names)
        }
        #expect(missing.map(\.names) == [])
        #expect(synopsis.options.subtracting(options.flatMap(\.names)) == [])
        #expect(synopsis.groups.subtracting(options.compactMap { Self.groups[$0.heading] }) == [])

        let usage = help.split(separator: "\n").first { $0.hasPrefix("USAGE: ") } ?? ""
        let repeated = usage.matches(of: #/(--[a-z0-9-]+) <[^>]+> \.\.\./#).map { String($0.1) }
        let unrepeated = repeated.filter { option in
            !covered.contains { $0.names.contains(option) } && !synopsis.repeated.contains(option)
        }
        #expect(unrepeated == [])
    }
}

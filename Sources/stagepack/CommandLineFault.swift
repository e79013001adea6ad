import ArgumentParser
import Glibc
import StageModel

/// A command line that cannot be parsed, with its message for people or, with `--json`, for programs.
struct CommandLineFault {
    /// The failure with its hint.
    private let failure: CommandFailure
    /// The parser's own text, with the usage of the command; `nil` if the failure is complete without it.
    private let text: String?
    private let isJSON: Bool
    /// Set if the command prints JSON as one object on each line.
    private var isOnOneLine = false

    /// Returns whether the command that arguments lead to prints JSON as one object on each line.
    static func printsJSONLines(_ arguments: [String]) -> Bool {
        CommandPath(arguments).printsJSONLines
    }

    /// Creates the fault for arguments that the parser has refused; `nil` for other errors, including
    /// requests for help.
    init?(_ error: any Error, of arguments: [String]) {
        // A command that has run has printed its failure, and throws its status.
        guard !(error is ExitCode), StagePackCommand.exitCode(for: error) == .validationFailure
        else { return nil }
        isJSON = arguments.prefix { $0 != "--" }.contains("--json")
        let command = CommandPath(arguments)
        isOnOneLine = command.printsJSONLines
        if let unknown = command.unknownCommand {
            failure = unknown
            text = nil
            return
        }
        var failure = CommandFailure.usage(StagePackCommand.message(for: error))
        failure.hint = "run '\(command.name) --help' to see its options"
        let isPackForPrefetch =
            command.name.hasSuffix(" prefetch")
            && failure.message.lowercased().contains("unexpected argument")
        if isPackForPrefetch {
            failure.hint =
                "the policies decide what this command stages: 'fetch' stages packs by name"
        }
        self.failure = failure
        text = isPackForPrefetch ? nil : StagePackCommand.fullMessage(for: error)
    }

    /// Creates the fault for a request for help about a command that does not exist; `nil` for other
    /// arguments.
    init?(helpAbout arguments: [String]) {
        guard arguments.first == "help",
            let unknown = CommandPath(Array(arguments.dropFirst())).unknownCommand
        else { return nil }
        failure = unknown
        text = nil
        isJSON = false
    }

    /// Creates the fault for `--version` among other arguments, with which a command would print the version and do nothing;
    /// `nil` for other arguments.
    init?(versionAmong arguments: [String]) {
        let words = arguments.prefix { $0 != "--" }
        let command = CommandPath(arguments)
        guard words.contains("--version"), words.count > command.depth + 1 else { return nil }
        var failure = CommandFailure.usage(
            "'--version' prints the version of stagepack, and takes no other arguments"
        )
        failure.hint =
            if command.name.hasSuffix(" manifest add") {
                "did you mean '--pack-version'?"
            } else if command.name.hasSuffix(" pin") {
                "name the version after the pack, without an option"
            } else {
                "run '\(command.name) --help' to see its options"
            }
        self.failure = failure
        text = nil
        isJSON = words.contains("--json")
        isOnOneLine = command.printsJSONLines
    }

    /// Prints the fault, and exits.
    func endProgram() -> Never {
        if let text, !isJSON {
            Console.note(text)
        } else {
            Console.report(failure, asJSON: isJSON, onOneLine: isOnOneLine)
        }
        Glibc.exit(failure.status.rawValue)
    }
}

/// The command that arguments name.
private struct CommandPath {
    /// The command's name, after the program's name and those of its parents.
    private(set) var name = "stagepack"
    /// The number of words of the command and its parents, without the program's name.
    private(set) var depth = 0
    /// The names of its subcommands.
    private(set) var names: [String] = []
    /// Set if the command prints JSON as one object on each line.
    private(set) var printsJSONLines = false
    /// The name of a subcommand that does not exist; `nil` if the arguments have none.
    private var unknownWord: String?

    /// The failure if the arguments name a subcommand that does not exist; `nil` otherwise.
    var unknownCommand: CommandFailure? {
        guard let word = unknownWord else { return nil }
        var failure = CommandFailure.usage("\(name) has no command '\(word.forDisplay())'")
        failure.hint =
            word.mostSimilar(in: names).map { similar in "did you mean '\(name) \(similar)'?" }
            ?? "run '\(name) --help' to see its commands"
        return failure
    }

    init(_ arguments: [String]) {
        var command: any ParsableCommand.Type = StagePackCommand.self
        for word in arguments {
            let subcommands = command.configuration.subcommands
                .filter { $0.configuration.shouldDisplay }
            names = subcommands.map { $0._commandName }
            guard !subcommands.isEmpty, !word.hasPrefix("-"), word != "help" else { return }
            guard let next = subcommands.first(where: { $0._commandName == word }) else {
                unknownWord = word
                return
            }
            name += " \(word)"
            depth += 1
            command = next
            printsJSONLines =
                (next as? any StagePackSubcommand.Type)?.printsJSONLines ?? false
        }
    }
}

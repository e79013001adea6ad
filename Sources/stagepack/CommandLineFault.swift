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

    /// Creates the fault for arguments that the parser has refused; `nil` for other errors, including
    /// requests for help.
    init?(_ error: any Error, of arguments: [String]) {
        // A command that has run has printed its failure, and throws its status.
        guard !(error is ExitCode), StagePackCommand.exitCode(for: error) == .validationFailure
        else { return nil }
        isJSON = arguments.prefix { $0 != "--" }.contains("--json")
        let place = CommandPlace(arguments)
        if let unknown = place.unknownCommand {
            failure = unknown
            text = nil
            return
        }
        var failure = CommandFailure.usage(StagePackCommand.message(for: error))
        failure.hint = "run '\(place.name) --help' to see its options"
        let isPackForPrefetch =
            place.name.hasSuffix(" prefetch")
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
            let unknown = CommandPlace(Array(arguments.dropFirst())).unknownCommand
        else { return nil }
        failure = unknown
        text = nil
        isJSON = false
    }

    /// Prints the fault, and exits.
    func endProgram() -> Never {
        if let text, !isJSON {
            Console.note(text)
        } else {
            Console.report(failure, asJSON: isJSON)
        }
        Glibc.exit(failure.status.rawValue)
    }
}

/// The command that arguments lead to.
private struct CommandPlace {
    /// The command's name, after the program's name and those of its parents.
    private(set) var name = "stagepack"
    /// The names of its subcommands.
    private(set) var names: [String] = []
    /// The word in the position of a subcommand that does not exist.
    private var unknownWord: String?

    /// The failure for a word in the position of a subcommand that does not exist.
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
            command = next
        }
    }
}

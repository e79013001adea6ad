import ArgumentParser
import Glibc
import StageModel

/// A command line that cannot be parsed, as people or, with `--json`, programs are told of it.
struct CommandLineFault {
    /// The failure with its hint.
    private let failure: CommandFailure
    /// The parser's own text, with the usage of the command; `nil` where the failure says all.
    private let text: String?
    private let isJSON: Bool

    /// Creates the fault of arguments that the parser has refused with an error; `nil` for an error of another kind,
    /// requests for help included.
    init?(_ error: any Error, of arguments: [String]) {
        // A command that was run has told its failure, and throws its status.
        guard !(error is ExitCode), StagePackCommand.exitCode(for: error) == .validationFailure
        else { return nil }
        isJSON = arguments.prefix { $0 != "--" }.contains("--json")
        let place = CommandPlace(arguments)
        if let word = place.unknownWord {
            var failure = CommandFailure.usage(
                "\(place.name) has no command '\(word.forDisplay())'"
            )
            failure.hint =
                word.mostSimilar(in: place.names).map { name in
                    "did you mean '\(place.name) \(name)'?"
                } ?? "run '\(place.name) --help' to see its commands"
            self.failure = failure
            text = nil
        } else {
            var failure = CommandFailure.usage(StagePackCommand.message(for: error))
            failure.hint = "run '\(place.name) --help' to see its options"
            self.failure = failure
            text = StagePackCommand.fullMessage(for: error)
        }
    }

    /// Tells the fault, and ends the program.
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
    /// The command's words, with the program's name.
    private(set) var name = "stagepack"
    /// The names of its subcommands.
    private(set) var names: [String] = []
    /// The word in the place of a subcommand that is none.
    private(set) var unknownWord: String?

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

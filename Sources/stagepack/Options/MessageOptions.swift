import ArgumentParser

/// The options for messages, which every command has.
struct MessageOptions: ParsableArguments {
    /// Choices for coloured text.
    enum ColourChoice: String, ExpressibleByArgument, CaseIterable {
        /// Colours at a terminal, unless `NO_COLOR` is set.
        case auto
        case always
        case never
    }

    @Option(
        help: ArgumentHelp(
            "When to colour text; auto does it at a terminal, unless NO_COLOR is set.",
            valueName: "when"
        )
    )
    var color = ColourChoice.auto

    @Flag(name: .shortAndLong, help: "Print debug messages too: retries, decisions, cleanup.")
    var verbose = false

    @Flag(name: .shortAndLong, help: "Print only errors and warnings.")
    var quiet = false

    func validate() throws {
        if verbose, quiet {
            throw ValidationError("--verbose and --quiet cannot be combined.")
        }
    }
}

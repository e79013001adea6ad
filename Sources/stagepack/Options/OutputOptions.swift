import ArgumentParser

/// What is printed, and how.
struct OutputOptions: ParsableArguments {
    /// How progress is shown on standard error.
    enum ProgressStyle: String, ExpressibleByArgument, CaseIterable {
        /// Bars at a terminal, lines elsewhere.
        case auto
        /// Bars, drawn over each other.
        case bars
        /// A line for each step.
        case lines
        /// A JSON object a line.
        case json
        /// Nothing.
        case none
    }

    @Flag(help: "Print the result as JSON.")
    var json = false

    @Option(help: ArgumentHelp("How to show progress.", valueName: "style"))
    var progress = ProgressStyle.auto

    @OptionGroup var messages: MessageOptions

    /// Whether nothing but errors is printed.
    var quiet: Bool {
        get { messages.quiet }
        set { messages.quiet = newValue }
    }
}

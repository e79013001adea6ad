import ArgumentParser

/// The options for results and progress.
struct OutputOptions: ParsableArguments {
    /// Styles of the progress on standard error.
    enum ProgressStyle: String, ExpressibleByArgument, CaseIterable {
        /// Bars at a terminal, lines elsewhere.
        case auto
        /// Bars, redrawn in place.
        case bars
        /// A line for each step.
        case lines
        /// A JSON object on each line.
        case json
        /// No progress.
        case none
    }

    @Flag(help: "Print the result as JSON.")
    var json = false

    @Option(help: ArgumentHelp("How to show progress.", valueName: "style"))
    var progress = ProgressStyle.auto

    @OptionGroup var messages: MessageOptions

    /// Set if only errors are printed.
    var quiet: Bool {
        get { messages.quiet }
        set { messages.quiet = newValue }
    }
}

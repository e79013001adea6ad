import FoundationEssentials
import Glibc
import Logging
import StageDisplay
import StageModel
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// Standard output for data, standard error for everything else.
///
/// Text from servers, clients of the daemon and containers of other users is printed. All text but that of
/// ``write(_:to:)`` has its control and bidirectional characters escaped, so that none reaches a terminal; the
/// reports escape the line breaks of such values (`escapedForDisplay`).
enum Console {
    /// Prints a value to standard output, as text or as a JSON object with the name of its schema, by default
    /// the command's.
    static func print(
        _ value: some Encodable & CustomStringConvertible,
        asJSON: Bool,
        schema: OutputSchema = .current,
        pretty: Bool = true
    ) {
        let styled = (value as? any StyledReport)?.styled.map {
            Self.text(of: $0, for: STDOUT_FILENO)
        }
        let text =
            asJSON
            ? json(OutputDocument(schema: schema, value: value), pretty: pretty)
            : styled?.joined(separator: "\n") ?? value.description.linesForDisplay
        if !text.isEmpty { write(text + "\n", to: STDOUT_FILENO) }
    }

    /// Prints a line to standard output.
    static func say(_ text: String) {
        write(text.linesForDisplay + "\n", to: STDOUT_FILENO)
    }

    /// Prints a line to standard error, above the drawn lines.
    ///
    /// With `--quiet`, prints only errors, warnings and their hints. In the journal, the line has the priority of `level`, or else that
    /// of its first words.
    static func note(_ text: String, level: Logger.Level? = nil) {
        guard messages.withLock({ $0.shows(text) }) else { return }
        put(text, level: level)
    }

    /// Prints a line of the progress that the options ask for to standard error, also with `--quiet`.
    static func note(progress text: String) { put(text, level: nil) }

    private static func put(_ text: String, level: Logger.Level?) {
        if isJournal {
            let priority = (level ?? self.level(of: text)).journalPriority
            write("<\(priority)>\(text.linesForDisplay)\n", to: STDERR_FILENO)
        } else {
            note(styled(text))
        }
    }

    /// Set if standard error is connected to the systemd journal.
    private static let isJournal = JournalStream.isConnected(
        to: .standardError,
        environment: ProcessEnvironment.current
    )

    /// Returns the level that the first words of a line name.
    private static func level(of text: String) -> Logger.Level {
        text.hasPrefix("stagepack: error:")
            ? .error : text.hasPrefix("stagepack: warning:") ? .warning : .info
    }

    /// Prints a line to standard error, above the drawn lines.
    static func note(_ line: StyledText) {
        drawn.withLock { drawn in
            let text = Self.text(of: line, for: STDERR_FILENO) + "\n"
            write(erasure(of: drawn.count) + text + redrawing(drawn), to: STDERR_FILENO)
        }
    }

    /// Returns the line, with the first word of an error, a warning or a hint in its style.
    private static func styled(_ text: String) -> StyledText {
        let heads: [(String, TextStyle)] = [
            ("stagepack: error:", .failure), ("stagepack: warning:", .warning), ("hint:", .accent),
        ]
        for (head, style) in heads where text.hasPrefix(head) {
            return StyledText(head, style: style) + String(text.dropFirst(head.count))
        }
        return StyledText(text)
    }

    /// Prints a failure: as a line, with its hint, or as JSON on standard output, if asked for on one line.
    static func report(_ failure: CommandFailure, asJSON: Bool, onOneLine: Bool = false) {
        if asJSON {
            return reportJSON(FailureReport(failure), onOneLine: onOneLine)
        }
        // The journal gets one entry for the failure and its hint.
        if isJournal, let hint = failure.hint {
            return note("stagepack: error: \(failure.message); hint: \(hint)")
        }
        note("stagepack: error: \(failure.message)")
        if let hint = failure.hint { note("hint: \(hint)") }
    }

    /// Prints failures as lines, each hint once: after the last failure that has it.
    static func report(_ failures: [CommandFailure]) {
        for (index, failure) in failures.enumerated() {
            var failure = failure
            // The journal gets each failure in an entry of its own, with its hint.
            if !isJournal, failures[(index + 1)...].contains(where: { $0.hint == failure.hint }) {
                failure.hint = nil
            }
            report(failure, asJSON: false)
        }
    }

    /// Prints a failure as JSON on standard output.
    static func reportJSON(_ failure: FailureReport, onOneLine: Bool = false) {
        print(ErrorReport(error: failure), asJSON: true, schema: .error, pretty: !onOneLine)
    }

    /// Returns the value as JSON, with the members in a fixed order, and control and bidirectional characters
    /// escaped.
    static func json(_ value: some Encodable, pretty: Bool = true) -> String {
        let encoder = JSONEncoder()
        encoder.dateEncodingStrategy = .custom { date, encoder in
            var container = encoder.singleValueContainer()
            try container.encode(InternetTime(date).description)
        }
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        if pretty { encoder.outputFormatting.insert(.prettyPrinted) }
        do {
            return String(decoding: try encoder.encode(value), as: UTF8.self).jsonForDisplay
        } catch {
            preconditionFailure("a report is always JSON: \(error)")
        }
    }

    /// Reports an error of writing standard output, if there was one, and returns the exit status of a command that would end
    /// with `status` otherwise.
    static func status(after status: ExitStatus) -> ExitStatus {
        let number = lastError.load(ordering: .relaxed)
        guard number != 0 else { return status }
        note("stagepack: error: cannot write standard output: \(Errno(rawValue: number))")
        return status == .success ? .outputFailed : status
    }

    private static let lastError = Atomic<CInt>(0)

    /// True if a line could not be written to standard output, also because its reader has closed it.
    static var outputHasFailed: Bool { failedOutput.load(ordering: .relaxed) }

    private static let failedOutput = Atomic<Bool>(false)

    /// Writes all of `text` as it is; ignores a closed pipe.
    static func write(_ text: String, to file: CInt) {
        var text = text
        text.withUTF8 { bytes in
            var written = 0
            while written < bytes.count {
                let rest = unsafe UnsafeRawBufferPointer(
                    rebasing: UnsafeRawBufferPointer(bytes)[written...]
                )
                let count = unsafe Glibc.write(file, rest.baseAddress, rest.count)
                if count < 0 && errno != EINTR {
                    // A closed pipe means that the reader needs no more data; any other error loses data.
                    let error = errno
                    if file == STDOUT_FILENO {
                        failedOutput.store(true, ordering: .relaxed)
                        if error != EPIPE { lastError.store(error, ordering: .relaxed) }
                    }
                    return
                }
                written += max(count, 0)
            }
        }
    }

    /// The settings for messages of the running command.
    struct Messages {
        var color = MessageOptions.ColourChoice.auto
        var isVerbose = false
        var isQuiet = false

        /// True if the last line that is not a hint was an error or a warning.
        private var isAfterProblem = false

        init() {}

        init(_ options: MessageOptions) {
            color = options.color
            isVerbose = options.verbose
            isQuiet = options.quiet
        }

        /// Returns whether a line is printed; a hint is printed if the line before it was.
        mutating func shows(_ text: String) -> Bool {
            if !text.hasPrefix("hint:") {
                isAfterProblem = ["stagepack: error:", "stagepack: warning:"]
                    .contains(where: text.hasPrefix)
            }
            return isAfterProblem || !isQuiet
        }
    }

    private static let messages = Mutex(Messages())

    /// Applies the settings of a command.
    static func use(_ options: MessageOptions) {
        messages.withLock { $0 = Messages(options) }
    }

    /// True if only errors and warnings are printed.
    static var isQuiet: Bool { messages.withLock(\.isQuiet) }

    /// True if messages about internal events are printed as well.
    static var isVerbose: Bool { messages.withLock(\.isVerbose) }

    /// The lines that are currently drawn at the terminal; the next ones replace them.
    private static let drawn = Mutex<[String]>([])

    /// Replaces the drawn lines, unless `isWanted` returns `false`.
    static func show(_ lines: [StyledText], if isWanted: () -> Bool = { true }) {
        drawn.withLock { drawn in
            guard isWanted(), !(lines.isEmpty && drawn.isEmpty) else { return }
            // A line break within a line would leave a line behind when the lines are erased.
            let new = lines.map {
                text(of: $0, for: STDERR_FILENO).replacing("\n", with: "\\u{a}")
            }
            write(erasure(of: drawn.count) + redrawing(new), to: STDERR_FILENO)
            drawn = new
        }
    }

    /// Returns the sequence that erases a number of lines above the cursor (ECMA-48, CUU and ED).
    private static func erasure(of count: Int) -> String {
        count == 0 ? "" : "\u{1B}[\(count)A\u{1B}[J"
    }

    private static func redrawing(_ lines: [String]) -> String {
        lines.map { $0 + "\n" }.joined()
    }

    /// Returns the text of a line, with colours if the file is to get them.
    static func text(of line: StyledText, for file: CInt) -> String {
        usesColour(on: file) ? line.coloured : line.description
    }

    private static func usesColour(on file: CInt) -> Bool {
        let environment = ProcessEnvironment.current
        return switch messages.withLock(\.color) {
        case .always: true
        case .never: false
        case .auto:
            isatty(file) == 1 && environment["TERM"] != "dumb"
                && (environment["NO_COLOR"] ?? "").isEmpty
        }
    }

    /// The characters that the terminal can show.
    static var glyphs: DisplayGlyphs {
        let environment = ProcessEnvironment.current
        if ProcessEnvironment.isPrivileged {
            // A privileged process does not trust variables that name a locale.
            return environment["TERM"] == "linux" ? .ascii : .unicode
        }
        let names = ["LC_ALL", "LC_CTYPE", "LANG"].lazy.compactMap { environment[$0] }
        let locale = names.first { !$0.isEmpty }?.lowercased() ?? ""
        return locale.hasSuffix("utf-8") || locale.hasSuffix("utf8") ? .unicode : .ascii
    }

    /// True if standard error is a terminal that can redraw lines.
    static var isInteractive: Bool {
        isatty(STDERR_FILENO) == 1 && ProcessEnvironment.current["TERM"] != "dumb"
    }

    /// The number of columns of the terminal; 80 if it is not known.
    static var columns: Int {
        var size = winsize()
        let status = unsafe ioctl(STDERR_FILENO, UInt(TIOCGWINSZ), &size)
        return status == 0 && size.ws_col > 0 ? Int(size.ws_col) : 80
    }
}

/// A report whose lines have styles at a terminal.
protocol StyledReport {
    /// The lines of the report.
    var styled: [StyledText] { get }
}

/// Output of `--json` when a command fails as a whole.
private struct ErrorReport: Codable, CustomStringConvertible {
    var error: FailureReport
    var description: String { error.message }
}

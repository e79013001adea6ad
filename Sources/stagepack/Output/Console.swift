import FoundationEssentials
import Glibc
import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// Standard output for data, standard error for everything else.
enum Console {
    /// Prints a value to standard output: as a JSON object of a shape, that of the command as a rule, or as text.
    static func print(
        _ value: some Encodable & CustomStringConvertible,
        asJSON: Bool,
        schema: OutputSchema = .current
    ) {
        let text = asJSON ? json(OutputDocument(schema: schema, value: value)) : value.description
        if !text.isEmpty { write(text + "\n", to: STDOUT_FILENO) }
    }

    /// Prints a line to standard output.
    static func say(_ text: String) {
        write(text + "\n", to: STDOUT_FILENO)
    }

    /// Prints a line to standard error.
    static func note(_ text: String) {
        write(text + "\n", to: STDERR_FILENO)
    }

    /// Prints a failure: as a line, with its hint, or as JSON on standard output.
    static func report(_ failure: CommandFailure, asJSON: Bool) {
        if asJSON {
            return reportJSON(FailureReport(failure))
        }
        note("stagepack: error: \(failure.message)")
        if let hint = failure.hint { note("hint: \(hint)") }
    }

    /// Prints a failure as JSON on standard output.
    static func reportJSON(_ failure: FailureReport) {
        print(ErrorReport(error: failure), asJSON: true, schema: .error)
    }

    /// The value as JSON, members in a fixed order.
    static func json(_ value: some Encodable, pretty: Bool = true) -> String {
        let encoder = JSONEncoder()
        encoder.dateEncodingStrategy = .custom { date, encoder in
            var container = encoder.singleValueContainer()
            try container.encode(InternetTime(date).description)
        }
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        if pretty { encoder.outputFormatting.insert(.prettyPrinted) }
        do {
            return String(decoding: try encoder.encode(value), as: UTF8.self)
        } catch {
            preconditionFailure("a report is always JSON: \(error)")
        }
    }

    /// Why standard output could not be written, if it could not.
    static var outputError: Errno? {
        let number = lastError.load(ordering: .relaxed)
        return number == 0 ? nil : Errno(rawValue: number)
    }

    private static let lastError = Atomic<CInt>(0)

    /// Writes all of `text`; a reader that has gone away is no error.
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
                    // A reader that has had enough; anything else is data that nobody got.
                    if file == STDOUT_FILENO, errno != EPIPE {
                        lastError.store(errno, ordering: .relaxed)
                    }
                    return
                }
                written += max(count, 0)
            }
        }
    }

    /// Whether a person at a terminal reads standard error.
    static var isInteractive: Bool {
        isatty(STDERR_FILENO) == 1 && ProcessEnvironment.current["TERM"] != "dumb"
    }

    /// The number of columns of the terminal, or 80.
    static var columns: Int {
        var size = winsize()
        let status = unsafe ioctl(STDERR_FILENO, UInt(TIOCGWINSZ), &size)
        return status == 0 && size.ws_col > 0 ? Int(size.ws_col) : 80
    }
}

/// What `--json` prints when a command fails as a whole.
private struct ErrorReport: Codable, CustomStringConvertible {
    var error: FailureReport
    var description: String { error.message }
}

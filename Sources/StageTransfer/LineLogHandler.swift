import FoundationEssentials
package import Logging
import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// Log handler that writes each message as one line to standard error.
///
/// Lines for the journal of systemd have a priority and no time: the journal has its own. A message of level notice
/// or above that repeats is written once in ten minutes, with the number of those that were left out. Messages contain text from clients and servers, such as
/// session names. The handler escapes its control characters, so that such text can forge neither a log line nor a priority
/// prefix of systemd (sd-daemon(3)).
package struct LineLogHandler: LogHandler {
    private var base: StreamLogHandler
    private let label: String
    private let isForJournal: Bool
    private let write: (@Sendable (String, Logger.Level) -> Void)?
    private let repetitions = Repetitions()

    private final class Repetitions: Sendable {
        let filter = Mutex(RepetitionFilter())
    }

    /// Creates a handler for a logger with this label, which writes to standard error.
    package init(label: String) {
        self.init(
            label: label,
            isForJournal: JournalStream.isConnected(
                to: .standardError,
                environment: ProcessEnvironment.current
            ),
            write: nil
        )
    }

    /// Creates a handler whose lines go elsewhere.
    ///
    /// - Parameters:
    ///   - label: The label of the logger.
    ///   - isForJournal: Whether the lines are for the journal of systemd.
    ///   - write: Writes a line, without its end, of a level; `nil` for standard error.
    package init(
        label: String,
        isForJournal: Bool,
        write: (@Sendable (String, Logger.Level) -> Void)?
    ) {
        self.label = label
        self.isForJournal = isForJournal
        self.write = write
        base = StreamLogHandler.standardError(label: label)
    }

    /// Lowest level that is written.
    package var logLevel: Logger.Level {
        get { base.logLevel }
        set { base.logLevel = newValue }
    }

    /// Metadata of every message.
    package var metadata: Logger.Metadata {
        get { base.metadata }
        set { base.metadata = newValue }
    }

    /// Provider of further metadata, evaluated for each message.
    package var metadataProvider: Logger.MetadataProvider? {
        get { base.metadataProvider }
        set { base.metadataProvider = newValue }
    }

    /// Metadata value of every message for a key.
    package subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { base[metadataKey: key] }
        set { base[metadataKey: key] = newValue }
    }

    /// Writes a message, unless it repeats one.
    package func log(event: LogEvent) {
        var event = event
        var message = event.message.description.escapedForDisplay
        event.metadata = event.metadata?.mapValues { "\($0.description.escapedForDisplay)" }
        // Messages with the same text and error are equal: other metadata, such as the task, is not compared.
        let key = [message, event.metadata?["error"]?.description ?? ""].joined(separator: " ")
        let now = Date().timeIntervalSince1970
        if event.level > .info {
            switch repetitions.filter.withLock({ $0.decide(key, at: now) }) {
            case .leaveOut: return
            case .write(leftOut: 0): break
            case .write(let leftOut): message += " (and \(leftOut) more like it)"
            }
        }
        event.message = "\(message)"
        guard isForJournal || write != nil else { return base.log(event: event) }
        let line = journalLine(message, of: event)
        if let write { write(line, event.level) } else { Self.writeToStandardError(line) }
    }

    private func journalLine(_ message: String, of event: LogEvent) -> String {
        var values = metadata.merging(metadataProvider?.get() ?? [:]) { $1 }
            .merging(event.metadata ?? [:]) { $1 }
        // Without priorities the line names its level, and reads like a message of a command.
        let error = isForJournal ? nil : values.removeValue(forKey: "error")
        let text = values.sorted { $0.key < $1.key }.map { " \($0.key)=\($0.value)" }.joined()
        let line = message + (error.map { ": \($0)" } ?? "") + text
        return isForJournal
            ? "<\(event.level.journalPriority)>\(label): \(line)"
            : "\(label): \(event.level): \(line)"
    }

    private static func writeToStandardError(_ line: String) {
        // A failed write cannot be reported anywhere else.
        _ = try? FileDescriptor.standardError.writeAll("\(line)\n".utf8)
    }
}

extension Logger.Level {
    /// The priority of syslog(3).
    package var journalPriority: Int {
        switch self {
        case .critical: 2
        case .error: 3
        case .warning: 4
        case .notice: 5
        case .info: 6
        case .debug, .trace: 7
        }
    }
}

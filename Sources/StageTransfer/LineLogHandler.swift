public import Logging
import StageModel

/// Log handler that writes each message as one line to standard error.
///
/// Messages contain text from clients and servers, such as session names. The handler escapes its control characters,
/// so that such text can forge neither a log line nor a priority prefix of systemd (sd-daemon(3)).
public struct LineLogHandler: LogHandler {
    private var base: StreamLogHandler

    /// Creates a handler for a logger with this label.
    public init(label: String) { base = StreamLogHandler.standardError(label: label) }

    /// Lowest level that is written.
    public var logLevel: Logger.Level {
        get { base.logLevel }
        set { base.logLevel = newValue }
    }

    /// Metadata of every message.
    public var metadata: Logger.Metadata {
        get { base.metadata }
        set { base.metadata = newValue }
    }

    /// Provider of further metadata, evaluated for each message.
    public var metadataProvider: Logger.MetadataProvider? {
        get { base.metadataProvider }
        set { base.metadataProvider = newValue }
    }

    /// Metadata value of every message for a key.
    public subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { base[metadataKey: key] }
        set { base[metadataKey: key] = newValue }
    }

    /// Writes a message.
    public func log(event: LogEvent) {
        var event = event
        event.message = "\(event.message.description.forDisplay(atMost: .max))"
        event.metadata = event.metadata?.mapValues { "\($0.description.forDisplay(atMost: .max))" }
        base.log(event: event)
    }
}

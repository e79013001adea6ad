public import Logging
import StageModel

/// A handler of log messages that writes each as one line to standard error.
///
/// Messages contain text that clients and servers chose, names of sessions for example. Its control
/// characters are escaped, so nobody writes a line, or a priority of systemd's (sd-daemon(3)), of their own.
public struct LineLogHandler: LogHandler {
    private var base: StreamLogHandler

    /// Creates a handler for a logger with this label.
    public init(label: String) { base = StreamLogHandler.standardError(label: label) }

    /// The least important level that is written.
    public var logLevel: Logger.Level {
        get { base.logLevel }
        set { base.logLevel = newValue }
    }

    /// Values that every message has.
    public var metadata: Logger.Metadata {
        get { base.metadata }
        set { base.metadata = newValue }
    }

    /// Further values that every message has, asked for when it is written.
    public var metadataProvider: Logger.MetadataProvider? {
        get { base.metadataProvider }
        set { base.metadataProvider = newValue }
    }

    /// The value that every message has under a key.
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

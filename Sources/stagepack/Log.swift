import Logging
import StageTransfer

/// The libraries' messages on standard error, as lines of the command: from level notice, or from debug with `--verbose`.
enum Log {
    static var logger: Logger {
        var logger = base
        logger.logLevel = Console.isVerbose ? .debug : .notice
        return logger
    }

    private static let base = Logger(label: "stagepack") { label in
        // The console writes priorities for the journal, and prints lines above drawn ones at a terminal.
        LineLogHandler(label: label, isForJournal: false) { Console.note($0, level: $1) }
    }
}

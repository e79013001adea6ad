import Logging
import StageTransfer

/// The log of the libraries' messages on standard error: from level notice, or from debug with `--verbose`.
enum Log {
    static var logger: Logger {
        var logger = base
        logger.logLevel = Console.isVerbose ? .debug : .notice
        return logger
    }

    private static let base = Logger(label: "stagepack") { label in
        // At a terminal, log lines are printed above the drawn lines.
        Console.isInteractive
            ? LineLogHandler(label: label, isForJournal: false) { Console.note($0) }
            : LineLogHandler(label: label)
    }
}

import Logging
import StageTransfer

/// The log of the libraries' messages: standard error, from notices on, or all of them with `--verbose`.
enum Log {
    static var logger: Logger {
        var logger = base
        logger.logLevel = Console.isVerbose ? .debug : .notice
        return logger
    }

    private static let base = Logger(label: "stagepack") { label in
        // At a terminal a line must not end up among those that are drawn.
        Console.isInteractive
            ? LineLogHandler(label: label, isForJournal: false) { Console.note($0) }
            : LineLogHandler(label: label)
    }
}

import Logging
import StageTransfer

/// The log of the libraries' messages: standard error, from notices on, or all of them with `--verbose`.
enum Log {
    static var logger: Logger {
        var logger = base
        logger.logLevel = Console.isVerbose ? .debug : .notice
        return logger
    }

    private static let base = Logger(label: "stagepack") { LineLogHandler(label: $0) }
}

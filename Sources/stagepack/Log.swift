import Logging
import StageTransfer

/// Where the libraries' messages go: standard error, warnings and above.
enum Log {
    static let logger: Logger = {
        var logger = Logger(label: "stagepack") { LineLogHandler(label: $0) }
        logger.logLevel = .warning
        return logger
    }()
}

import Logging
import StageTransfer

/// The log of the libraries' messages: standard error, from notices on, as the texts that extensions print are.
enum Log {
    static let logger: Logger = {
        var logger = Logger(label: "stagepack") { LineLogHandler(label: $0) }
        logger.logLevel = .notice
        return logger
    }()
}

import Logging
import StageSystem
import SystemPackage

extension FileError {
    /// The error for the log.
    ///
    /// Only `error` decides whether a message repeats another one, so it has no path: that may be a client's choice, or
    /// another one for each task.
    var metadata: Logger.Metadata {
        ["error": "cannot \(operation) it: \(errno)", "path": "\(path.string.prefix(200))"]
    }
}

extension DaemonError {
    /// The error for the log, with the path of a file apart.
    var metadata: Logger.Metadata {
        if case .file(let error) = self { error.metadata } else { ["error": "\(self)"] }
    }
}

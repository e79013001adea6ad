import Logging
import StageSystem
import SystemPackage

extension FileError {
    /// The error for the log.
    ///
    /// Only `error` decides whether a message repeats another one. It has no path, because a client may choose the path, and
    /// the paths of tasks differ.
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

import StageModel
package import StageSystem
import SystemPackage

/// Error of a request to the daemon.
@nonexhaustive
package indirect enum ControlError: Error, Equatable, Sendable {
    /// No daemon listens on any of these paths.
    case notRunning([String])
    /// This user may not connect to the daemon's socket.
    case accessDenied(String)
    /// The listening process belongs to another user, whom this process does not trust.
    case untrusted(String, user: UInt32)
    /// The path is longer than a socket's path can be.
    case pathTooLong(String)
    /// The daemon ended, disconnected, or was silent for `after` before its response was complete. The request may
    /// have taken effect.
    case lost(String, after: Duration? = nil)
    /// The daemon refused the request.
    case refused(ControlRefusal)
    /// The response is not one that this version understands.
    case malformed(String)
    /// The response, or one of its lines, exceeds the limit in bytes.
    case tooLarge(limit: Int)
    /// The caller cancelled the request.
    case cancelled
    /// Another system call failed.
    case system(FileError)

    /// Converts the error of a failed connection attempt with a timeout of `timeout`.
    init(connecting error: FileError, timeout: Duration?) {
        let path = error.path.string
        switch error.errno {
        case .noSuchFileOrDirectory, .connectionRefused, .notDirectory: self = .notRunning([path])
        case .permissionDenied, .notPermitted: self = .accessDenied(path)
        case .fileNameTooLong: self = .pathTooLong(path)
        case .resourceTemporarilyUnavailable: self = .lost(path, after: timeout)
        default: self = .system(error)
        }
    }
}

extension ControlError {
    /// Set if repeating the request later, or over another connection, may succeed.
    package var isTemporary: Bool {
        switch self {
        case .notRunning, .lost, .cancelled, .system: true
        case .refused(let refusal): refusal.isTemporary
        case .accessDenied, .untrusted, .pathTooLong, .malformed, .tooLarge: false
        }
    }
}

extension ControlError {
    /// Set if a daemon that this user may use runs, or may run, so that transfers of this user may continue.
    package var mayHideTransfers: Bool {
        switch self {
        case .notRunning, .accessDenied, .untrusted, .pathTooLong, .cancelled: false
        case .lost, .refused, .malformed, .tooLarge, .system: true
        }
    }
}

extension ControlRefusal {
    /// Set if the daemon may accept the same request later.
    package var isTemporary: Bool { code == .unavailable || isShortage }

    /// Set if the daemon lacks disk space, or the user has reached a limit of tasks, bytes, sessions or event streams.
    package var isShortage: Bool { code == .storage || code == .quota }
}

extension ControlError: CustomStringConvertible {
    /// The reason, as a sentence fragment for people.
    package var description: String {
        switch self {
        case .notRunning(let paths):
            let sockets = paths.map { "'\($0)'" }.joined(separator: " or ")
            return "no daemon listens at \(sockets.isEmpty ? "any socket" : sockets)"
        case .accessDenied(let path): return "this user may not connect to the daemon at '\(path)'"
        case .pathTooLong(let path):
            return "the path of a socket has at most 107 bytes, found \(path.utf8.count): '\(path)'"
        case .untrusted(let path, let user):
            return
                "the process that listens at '\(path)' belongs to user \(user), and not to root or "
                + "this user"
        case .lost(let path, let timeout?):
            return
                "the daemon at '\(path)' does not answer: it sent nothing for \(timeout.inWords)"
        case .lost(let path, nil):
            return "the daemon at '\(path)' closed the connection before it answered"
        case .refused(let refusal): return refusal.message
        case .malformed(let reason): return "the daemon's answer is invalid: \(reason)"
        case .tooLarge(let limit):
            return
                "the daemon's answer is too large: expected at most \(limit.quantity(of: "byte"))"
        case .cancelled: return "cancelled"
        case .system(let error): return error.description
        }
    }
}

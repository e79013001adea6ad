public import StageSystem
import SystemPackage

/// Why a question to the daemon has no answer.
@nonexhaustive
public enum ControlError: Error, Equatable, Sendable {
    /// No daemon listens at any of the paths that were tried.
    case notRunning([String])
    /// A daemon listens there, and this user may not speak to it.
    case accessDenied(String)
    /// The path has more bytes than that of a socket can have.
    case pathTooLong(String)
    /// The daemon ended, or broke off, before its answer was complete: what was asked for may have been
    /// done or not.
    case lost(String)
    /// The daemon refused.
    case refused(ControlRefusal)
    /// What came is no answer that this version understands.
    case malformed(String)
    /// The answer, or a line of it, has more bytes than this.
    case tooLarge(limit: Int)
    /// The one who asked does not want to know any more.
    case cancelled
    /// The system refused a connection for another reason.
    case system(FileError)

    /// Makes the error of a connection that could not be had.
    init(connecting error: FileError) {
        let path = error.path.string
        switch error.errno {
        case .noSuchFileOrDirectory, .connectionRefused, .notDirectory: self = .notRunning([path])
        case .permissionDenied, .notPermitted: self = .accessDenied(path)
        case .fileNameTooLong: self = .pathTooLong(path)
        default: self = .system(error)
        }
    }
}

extension ControlError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .notRunning(let paths):
            let places = paths.map { "'\($0)'" }.joined(separator: " or ")
            return "no daemon listens at \(places.isEmpty ? "any socket" : places)"
        case .accessDenied(let path): return "the daemon at '\(path)' is not for this user"
        case .pathTooLong(let path):
            return "the path of a socket has at most 107 bytes, found \(path.utf8.count): '\(path)'"
        case .lost(let path): return "the daemon at '\(path)' broke off before it had answered"
        case .refused(let refusal): return refusal.message
        case .malformed(let reason): return "the daemon's answer is none: \(reason)"
        case .tooLarge(let limit):
            return "the daemon's answer is too large: expected at most \(limit) bytes"
        case .cancelled: return "cancelled"
        case .system(let error): return error.description
        }
    }
}

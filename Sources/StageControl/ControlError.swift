import StageModel
public import StageSystem
import SystemPackage

/// Why a question to the daemon has no answer.
@nonexhaustive
public indirect enum ControlError: Error, Equatable, Sendable {
    /// No daemon listens at any of the paths that were tried.
    case notRunning([String])
    /// A daemon listens there, and this user may not speak to it.
    case accessDenied(String)
    /// The process that listens there is another user's, whose word does not count.
    case untrusted(String, user: UInt32)
    /// The path has more bytes than that of a socket can have.
    case pathTooLong(String)
    /// The daemon ended, broke off, or was silent for `after`, before its answer was complete: what was
    /// asked for may have been done or not.
    case lost(String, after: Duration? = nil)
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

    /// Makes the error of a connection that could not be made within `patience`.
    init(connecting error: FileError, patience: Duration?) {
        let path = error.path.string
        switch error.errno {
        case .noSuchFileOrDirectory, .connectionRefused, .notDirectory: self = .notRunning([path])
        case .permissionDenied, .notPermitted: self = .accessDenied(path)
        case .fileNameTooLong: self = .pathTooLong(path)
        case .resourceTemporarilyUnavailable: self = .lost(path, after: patience)
        default: self = .system(error)
        }
    }
}

extension ControlError {
    /// Whether the same request may be answered otherwise by another connection.
    public var mayPass: Bool {
        switch self {
        case .notRunning, .lost, .cancelled, .system: true
        case .refused(let refusal): [.unavailable, .storage, .quota].contains(refusal.code)
        case .accessDenied, .untrusted, .pathTooLong, .malformed, .tooLarge: false
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
        case .untrusted(let path, let user):
            return "the socket '\(path)' is of a process of user \(user), which is no daemon for "
                + "this user"
        case .lost(let path, let patience?):
            let seconds = patience.components.seconds
            return
                "the daemon at '\(path)' does not answer: nothing came for \(seconds.quantity(of: "second"))"
        case .lost(let path, nil):
            return "the daemon at '\(path)' broke off before it had answered"
        case .refused(let refusal): return refusal.message
        case .malformed(let reason): return "the daemon's answer is none: \(reason)"
        case .tooLarge(let limit):
            return
                "the daemon's answer is too large: expected at most \(limit.quantity(of: "byte"))"
        case .cancelled: return "cancelled"
        case .system(let error): return error.description
        }
    }
}

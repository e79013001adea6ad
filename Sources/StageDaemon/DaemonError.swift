package import StageControl
package import StageSystem
package import SystemPackage

/// Error that prevents the daemon from running.
@nonexhaustive
package indirect enum DaemonError: Error, Equatable, Sendable {
    /// One of the daemon's files or directories is unusable.
    case file(FileError)
    /// The journal cannot be read or written; the text is SQLite's.
    case journal(FilePath, String)
    /// Another version of the daemon wrote the journal, and this version cannot read it.
    case journalOfOtherVersion(FilePath)
    /// The daemon cannot listen on the socket.
    case socket(FilePath, String)
    /// Another daemon uses the state directory; `process` is its number, if it is known.
    case alreadyRunning(FilePath, process: Int32?)
    /// A client's request was refused.
    case refused(ControlRefusal)
    /// The configuration is invalid.
    case configuration(FilePath, String)
}

extension DaemonError: CustomStringConvertible {
    /// The reason, as a sentence fragment for people.
    package var description: String {
        switch self {
        case .file(let error): "\(error)"
        case .journal(let path, let detail): "the journal '\(path)' is unusable: \(detail)"
        case .journalOfOtherVersion(let path):
            "the journal '\(path)' was written by another version of stagepackd"
        case .socket(let path, let detail): "cannot listen on '\(path)': \(detail)"
        case .alreadyRunning(let path, let process?):
            "another stagepackd uses '\(path)': process \(process)"
        case .alreadyRunning(let path, _): "another stagepackd uses '\(path)'"
        case .refused(let refusal): "\(refusal)"
        case .configuration(let path, let detail): "'\(path)' is unusable: \(detail)"
        }
    }

    /// Set if a full disk caused the error, which is temporary.
    package var isOutOfSpace: Bool {
        if case .file(let error) = self { error.isOutOfSpace } else { false }
    }

    /// Description of the error for tasks that wait for the disk because of it; `nil` if the disk is full.
    var diskProblem: String? { isOutOfSpace ? nil : "\(self)" }

    /// Advice for people, if the description does not contain it.
    package var hint: String? {
        switch self {
        case .journalOfOtherVersion:
            "install that version again, or move the journal away: its transfers are forgotten then"
        case .alreadyRunning(_, let process?):
            "end it with 'kill \(process)', or choose another directory with '--state'"
        case .configuration: "'man stagepackd.json' describes the settings"
        case .file(let error) where error.isOutOfSpace: "\(error.spaceAdvice), and start it again"
        default: nil
        }
    }
}

extension ControlRefusal {
    /// Converts an error into the refusal that the client receives.
    init(_ error: DaemonError) {
        if case .refused(let refusal) = error {
            self = refusal
        } else if case .file(let fault) = error, fault.isOutOfSpace {
            self.init(
                .storage,
                message: "the disk is full: \(fault.spaceAdvice), and repeat the request"
            )
        } else {
            self.init(.storage, message: "\(error)")
        }
    }
}

public import StageControl
public import StageSystem
public import SystemPackage

/// Why the daemon cannot go on.
@nonexhaustive
public indirect enum DaemonError: Error, Equatable, Sendable {
    /// A directory or file of the daemon's cannot be used.
    case file(FileError)
    /// The journal cannot be read or written; the text is SQLite's.
    case journal(FilePath, String)
    /// The journal has tables that another version of the daemon made, and this one cannot read.
    case journalOfOtherVersion(FilePath)
    /// The socket cannot be listened on.
    case socket(FilePath, String)
    /// Another daemon works in the directory.
    case alreadyRunning(FilePath)
    /// What a client asked for cannot be.
    case refused(ControlRefusal)
    /// The configuration cannot be used.
    case configuration(FilePath, String)
}

extension DaemonError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .file(let error): "\(error)"
        case .journal(let path, let detail): "the journal '\(path)' cannot be used: \(detail)"
        case .journalOfOtherVersion(let path):
            "the journal '\(path)' was written by another version of stagepackd"
        case .socket(let path, let detail): "cannot listen on '\(path)': \(detail)"
        case .alreadyRunning(let path): "another stagepackd works in '\(path)'"
        case .refused(let refusal): "\(refusal)"
        case .configuration(let path, let detail): "'\(path)' cannot be used: \(detail)"
        }
    }

    /// The one thing to do about it, for a person, where that is not in the reason.
    public var hint: String? {
        switch self {
        case .journalOfOtherVersion:
            "install that version again, or move the journal away: its transfers are forgotten then"
        default: isOutOfSpace ? "free some space, and start it again" : nil
        }
    }
}

extension ControlRefusal {
    /// Creates the refusal that a client gets for an error.
    init(_ error: DaemonError) {
        if case .refused(let refusal) = error {
            self = refusal
        } else if error.isOutOfSpace {
            self.init(.storage, "the disk is full: make room and repeat the request")
        } else {
            self.init(.storage, "\(error)")
        }
    }
}

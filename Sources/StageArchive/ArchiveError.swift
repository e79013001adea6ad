public import StageModel
public import StageSystem

/// The reason why an archive was not unpacked.
///
/// `entry` is the name from the archive, decoded as UTF-8 with invalid bytes replaced.
@nonexhaustive
public indirect enum ArchiveError: Error, Equatable, Sendable, Codable {
    /// The bytes are not an archive of the declared format; with the message of libarchive.
    case wrongFormat(expected: ArchiveFormat, String)
    /// The archive is damaged or truncated; with the message of libarchive and the last entry whose header was
    /// read, or `nil` if there was none.
    case damaged(entry: String?, String)
    /// An entry has a name, a type, a mode or a link target that packs must not contain.
    case notAllowed(entry: String, ValueError)
    /// Two entries have conflicting names.
    case collision(entry: String, Collision)
    /// The archive has more entries than declared; names the first one beyond the limit.
    case tooManyEntries(entry: String, limit: Int)
    /// The content is larger than declared; names the entry that exceeds the limit.
    case tooLarge(entry: String, limit: ByteCount)
    /// A file system call failed.
    case fileSystem(FileError)
    /// The unpacking process exited early, or was killed by a signal, without a request to end.
    case interrupted(ChildProcess.Ending)
    /// The process has root's rights, and decoding cannot be confined because this is missing.
    case notConfined(Missing)
    /// The caller cancelled.
    case cancelled

    /// The reason why two entries conflict.
    @nonexhaustive
    public enum Collision: String, Sendable, Codable {
        /// Both have the same name, or names that the file system treats as equal.
        case sameName
        /// The name is a file or a link in one entry and a directory in another.
        case fileAndDirectory
    }

    /// A requirement that is missing: without it, root does not unpack archives.
    @nonexhaustive
    public enum Missing: String, Sendable, Codable {
        /// Landlock in the kernel.
        case landlock
        /// System call filters (seccomp(2)) in the kernel.
        case callFilter
        /// A separate process for the decoder: ``Unpacker/Mode/process(executable:arguments:)``.
        case ownProcess
    }
}

extension ArchiveError: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    public var description: String {
        switch self {
        case .wrongFormat(let expected, let words):
            "not an archive in the format '\(expected.rawValue)': \(words.forDisplay())"
        case .damaged(let entry?, let words):
            "archive is damaged at entry '\(entry.forDisplay())': \(words.forDisplay())"
        case .damaged(nil, let words):
            "archive is damaged: \(words.forDisplay())"
        case .notAllowed(let entry, let fault):
            "entry '\(entry.forDisplay())' is not allowed: \(fault)"
        case .collision(let entry, .sameName):
            "entry '\(entry.forDisplay())' occurs twice"
        case .collision(let entry, .fileAndDirectory):
            "entry '\(entry.forDisplay())' is both a file and a directory"
        case .tooManyEntries(let entry, let limit):
            "archive has more than \(limit.quantity(of: "entry", plural: "entries")), the first too many '\(entry.forDisplay())'"
        case .tooLarge(let entry, let limit):
            "archive expands to more than \(limit.rawValue.quantity(of: "byte")) at entry '\(entry.forDisplay())'"
        case .fileSystem(let error):
            error.description
        case .interrupted(.signalled(let signal)):
            "the unpacking process was ended by signal \(signal)"
        case .interrupted(.exited(let status)):
            "the unpacking process exited with status \(status)"
        case .interrupted(.unknown):
            "the unpacking process ended with an unknown status; this process may ignore SIGCHLD"
        case .notConfined(.landlock):
            "root unpacks archives only with Landlock, which this kernel does not have"
        case .notConfined(.callFilter):
            "root unpacks archives only with seccomp filters, which this kernel does not have"
        case .notConfined(.ownProcess):
            "root unpacks archives only in a separate process"
        case .cancelled:
            "unpacking was cancelled"
        }
    }
}

extension ArchiveError {
    /// Calls `body`, and wraps its ``FileError``.
    static func wrapping<Result: ~Copyable>(
        _ body: () throws(FileError) -> Result
    ) throws(ArchiveError) -> Result {
        do {
            return try body()
        } catch {
            throw .fileSystem(error)
        }
    }
}

extension String {
    /// The text, truncated to 2,048 bytes for errors, because an archive may contain names of any length.
    var clipped: String {
        utf8.count <= 2048 ? self : String(decoding: utf8.prefix(2048), as: UTF8.self) + "…"
    }
}

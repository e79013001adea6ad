public import StageModel
public import StageSystem

/// Why an archive was not unpacked.
///
/// `entry` is the name as the archive has it, in Unicode as far as it is.
@nonexhaustive
public indirect enum ArchiveError: Error, Equatable, Sendable, Codable {
    /// The bytes are not an archive of the declared format; in the words of libarchive.
    case wrongFormat(expected: ArchiveFormat, String)
    /// The archive is damaged or cut short; in the words of libarchive, after the last entry whose
    /// header was read, or `nil` if there was none.
    case damaged(entry: String?, String)
    /// An entry has a name, a kind, a mode or a target that a pack may not hold.
    case notAllowed(entry: String, ValueError)
    /// Another entry has taken the name.
    case collision(entry: String, Collision)
    /// There are more entries than declared; in order, this is the first one too many.
    case tooManyEntries(entry: String, limit: Int)
    /// The content is larger than declared; this is the entry that passes the limit.
    case tooLarge(entry: String, limit: ByteCount)
    /// The file system refused.
    case fileSystem(FileError)
    /// The process that unpacked was ended by a signal, or exited with a status, on its own.
    case interrupted(ChildProcess.Ending)
    /// The process has root's rights, and decoding cannot be confined for want of this.
    case notConfined(Missing)
    /// The caller gave up.
    case cancelled

    /// The reason that two entries come to one name.
    public enum Collision: String, Sendable, Codable {
        /// Both have it, or names that the file system takes for the same.
        case sameName
        /// It is a file or a link for one, and a directory for the other.
        case fileAndDirectory
    }

    /// A kernel feature without which root decodes nothing.
    public enum Missing: String, Sendable, Codable {
        /// Landlock, of the kernel.
        case landlock
        /// Filters of system calls (seccomp(2)), of the kernel.
        case callFilter
        /// A process for the decoder alone: ``Unpacker/Mode/process(executable:arguments:)``.
        case ownProcess
    }
}

extension ArchiveError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
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
            "entry '\(entry.forDisplay())' is there twice"
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
        case .notConfined(.landlock):
            "root decodes no archive without Landlock, which this kernel does not have"
        case .notConfined(.callFilter):
            "root decodes no archive without seccomp filters, which this kernel does not have"
        case .notConfined(.ownProcess):
            "root decodes no archive on a thread of its own process"
        case .cancelled:
            "unpacking was cancelled"
        }
    }
}

extension ArchiveError {
    /// Calls `body`, and wraps the error of a file system call.
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
    /// The text cut to a length that an error carries, whatever an archive has for a name.
    var clipped: String {
        utf8.count <= 2048 ? self : String(decoding: utf8.prefix(2048), as: UTF8.self) + "…"
    }
}

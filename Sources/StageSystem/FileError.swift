public import SystemPackage

/// A call on the file system that did not succeed.
public struct FileError: Error, Equatable, Sendable {
    /// What was attempted, as a verb: `open`, `write`, `rename`.
    public var operation: String
    /// What it was attempted on.
    public var path: FilePath
    /// What the kernel answered.
    public var errno: Errno

    /// Creates an error from its facts.
    public init(_ operation: String, _ path: FilePath, _ errno: Errno) {
        self.operation = operation
        self.path = path
        self.errno = errno
    }

    /// Creates the error of opening what has to be a regular file and is not.
    init(notRegular path: FilePath) {
        self.init("open", path, Self.wrongKind)
    }

    /// Creates the error of a lock that others hold.
    public init(lockedByOthers path: FilePath) {
        self.init(Self.lock, path, .resourceTemporarilyUnavailable)
    }

    private static let lock = "lock"

    /// Whether a lock could not be taken in time because another process holds it.
    public var isHeldByOthers: Bool {
        operation == Self.lock && errno == .resourceTemporarilyUnavailable
    }

    /// Whether a regular file was expected, and a fifo, device, socket, directory or symbolic link has
    /// the name.
    public var isNotRegularFile: Bool { errno == Self.wrongKind || errno == .isDirectory }

    /// Whether what has the name cannot be the file that was written: it is no regular file, or larger.
    public var isWrongKindOrSize: Bool { isNotRegularFile || errno == .fileTooLarge }

    /// EMEDIUMTYPE, which no call on files returns: "it is not a regular file".
    private static let wrongKind = Errno(rawValue: 124)

    /// Whether the file system, or the share of it this user may fill, is full.
    public var isOutOfSpace: Bool { errno == .noSpace || errno == Self.quotaExceeded }

    /// Whether a limit of open files, threads, processes or memory is reached, of the process or of the system.
    public var isRefusedByLimit: Bool {
        switch errno {
        case .tooManyOpenFiles, .tooManyOpenFilesInSystem, .noMemory: true
        // Else it is a lock that is held, or a stream that has nothing yet.
        case .resourceTemporarilyUnavailable: operation == "start"
        default: false
        }
    }

    /// EDQUOT, which swift-system names only on Apple's platforms.
    private static let quotaExceeded = Errno(rawValue: 122)
}

extension FileError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        if isHeldByOthers { return "another process holds the lock '\(path)'" }
        let reason = errno == Self.wrongKind ? "it is not a regular file" : "\(errno)"
        return "cannot \(operation) '\(path)': \(reason)"
    }
}

extension FileError: Codable {
    private enum CodingKeys: CodingKey {
        case operation
        case path
        case errno
    }

    /// Decodes an error from its facts, the reason as the number that errno(3) had.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        self.init(
            try container.decode(String.self, forKey: .operation),
            FilePath(try container.decode(String.self, forKey: .path)),
            Errno(rawValue: try container.decode(CInt.self, forKey: .errno))
        )
    }

    /// Encodes the facts of the error.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(operation, forKey: .operation)
        try container.encode(path.string, forKey: .path)
        try container.encode(errno.rawValue, forKey: .errno)
    }
}

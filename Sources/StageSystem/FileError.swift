public import SystemPackage

/// A failed system call on a file or another resource.
public struct FileError: Error, Equatable, Sendable {
    /// The operation, as a verb: `open`, `write`, `rename`.
    public var operation: String
    /// The path of the file.
    public var path: FilePath
    /// The error number from the kernel.
    public var errno: Errno

    /// Creates an error from the operation, the path and the error number.
    public init(_ operation: String, path: FilePath, errno: Errno) {
        self.operation = operation
        self.path = path
        self.errno = errno
    }

    /// Creates the error for a path that is not a regular file.
    init(notRegular path: FilePath) {
        self.init("open", path: path, errno: Self.wrongKind)
    }

    /// Creates the error for a lock that another process holds.
    public init(lockedByOthers path: FilePath) {
        self.init(Self.lock, path: path, errno: .resourceTemporarilyUnavailable)
    }

    private static let lock = "lock"

    /// Indicates whether the operation timed out waiting for a lock that another process holds.
    public var isHeldByOthers: Bool {
        operation == Self.lock && errno == .resourceTemporarilyUnavailable
    }

    /// Indicates whether the path is a FIFO, device, socket, directory or symbolic link where a regular file was
    /// expected.
    public var isNotRegularFile: Bool { errno == Self.wrongKind || errno == .isDirectory }

    /// Indicates whether the file is not a regular file, or is larger than expected.
    public var isWrongKindOrSize: Bool { isNotRegularFile || errno == .fileTooLarge }

    /// EMEDIUMTYPE, which no file system call returns; here it means "it is not a regular file".
    private static let wrongKind = Errno(rawValue: 124)

    /// Indicates whether the file system is full, or the user's disk quota is reached.
    public var isOutOfSpace: Bool { errno == .noSpace || errno == Self.quotaExceeded }

    /// Indicates whether a limit of open files, threads, processes or memory is reached, of the process or of the
    /// system.
    public var isRefusedByLimit: Bool {
        switch errno {
        case .tooManyOpenFiles, .tooManyOpenFilesInSystem, .noMemory: true
        // For other operations, EAGAIN means a held lock or a stream without data.
        case .resourceTemporarilyUnavailable: operation == "start"
        default: false
        }
    }

    /// Indicates whether the file system, or the kernel, lacks the operation.
    package var isUnsupported: Bool {
        errno == .invalidArgument || errno == .notSupported || errno == .noFunction
    }

    /// EDQUOT, which swift-system names only on Apple's platforms.
    private static let quotaExceeded = Errno(rawValue: 122)
}

extension FileError: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
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

    /// Decodes the error; the reason is an errno(3) number.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        self.init(
            try container.decode(String.self, forKey: .operation),
            path: FilePath(try container.decode(String.self, forKey: .path)),
            errno: Errno(rawValue: try container.decode(CInt.self, forKey: .errno))
        )
    }

    /// Encodes the error; the reason is an errno(3) number.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(operation, forKey: .operation)
        try container.encode(path.string, forKey: .path)
        try container.encode(errno.rawValue, forKey: .errno)
    }
}

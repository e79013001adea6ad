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

    /// Whether the file system, or the share of it this user may fill, is full.
    public var isOutOfSpace: Bool { errno == .noSpace || errno == Self.quotaExceeded }

    /// EDQUOT, which swift-system names only on Apple's platforms.
    private static let quotaExceeded = Errno(rawValue: 122)
}

extension FileError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        "cannot \(operation) '\(path)': \(errno)"
    }
}

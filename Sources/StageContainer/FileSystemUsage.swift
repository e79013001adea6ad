package import StageModel

/// Bytes and inodes of a file system, which content takes or an eviction frees.
package struct FileSystemUsage: Equatable, Sendable {
    /// The disk space.
    package var bytes: ByteCount
    /// The number of files, links and directories.
    package var inodes: Int

    /// No bytes and no inodes.
    package static let zero = FileSystemUsage(bytes: .zero, inodes: 0)

    /// Creates the usage from its parts.
    package init(bytes: ByteCount, inodes: Int) {
        (self.bytes, self.inodes) = (bytes, inodes)
    }

    /// Returns whether both parts are at least those of another usage.
    package func covers(_ other: Self) -> Bool { bytes >= other.bytes && inodes >= other.inodes }

    /// The sum of two usages, part by part.
    package static func + (left: Self, right: Self) -> Self {
        Self(bytes: left.bytes + right.bytes, inodes: left.inodes + right.inodes)
    }

    /// The difference of two usages, part by part, which may be negative.
    package static func - (left: Self, right: Self) -> Self {
        Self(bytes: left.bytes - right.bytes, inodes: left.inodes - right.inodes)
    }
}

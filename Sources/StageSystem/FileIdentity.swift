import CLinux
import Glibc
import SystemPackage

/// Which file is open and in what state: equal identities mean an unchanged file.
///
/// A change within one tick of the kernel's clock can go unseen, so an identity proves nothing about
/// a file that changed just now.
public struct FileIdentity: Hashable, Sendable {
    /// The file system that holds the file.
    public var device: UInt64
    /// The number of the file within its file system.
    public var inode: UInt64
    /// The size in bytes.
    public var size: Int64
    /// When the content last changed, in nanoseconds since 1970.
    public var modified: Int64
    /// When content, names or permissions last changed, in nanoseconds since 1970.
    public var changed: Int64

    init(_ status: stat) {
        device = UInt64(status.st_dev)
        inode = UInt64(status.st_ino)
        size = Int64(status.st_size)
        modified = Self.nanoseconds(status.st_mtim)
        changed = Self.nanoseconds(status.st_ctim)
    }

    /// Whether the content is as it was at `other`, however the names of the file changed since.
    public func hasSameContent(as other: FileIdentity) -> Bool {
        device == other.device && inode == other.inode && size == other.size
            && modified == other.modified
    }

    private static func nanoseconds(_ time: timespec) -> Int64 {
        Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec)
    }
}

extension File {
    /// Returns which file this is and in what state.
    public func identity() throws(FileError) -> FileIdentity {
        var status = stat()
        _ = try Directory.attempt("look at", path) { unsafe fstat(descriptor.rawValue, &status) }
        return FileIdentity(status)
    }
}

extension Directory {
    /// Returns which directory this is and in what state.
    public func identity() throws(FileError) -> FileIdentity {
        var status = stat()
        _ = try Self.attempt("look at", path) { unsafe fstat(descriptor.rawValue, &status) }
        return FileIdentity(status)
    }
}

import CLinux
import Glibc
package import SystemPackage

/// Identity and state of an open file: equal values mean that the file has not changed.
///
/// Two changes within one tick of the kernel's clock can look the same, so the identity of a file that
/// changed just now proves nothing.
public struct FileIdentity: Hashable, Sendable {
    /// The device number of the file system.
    public var device: UInt64
    /// The inode number.
    public var inode: UInt64
    /// The size in bytes.
    public var size: Int64
    /// The modification time of the content, in nanoseconds since 1970.
    public var modified: Int64
    /// The change time of content, names or permissions, in nanoseconds since 1970.
    public var changed: Int64

    init(_ status: stat) {
        device = UInt64(status.st_dev)
        inode = UInt64(status.st_ino)
        size = Int64(status.st_size)
        modified = Self.nanoseconds(status.st_mtim)
        changed = Self.nanoseconds(status.st_ctim)
    }

    /// Returns whether the file has the same content as at `other`, even if its names have changed.
    public func hasSameContent(as other: FileIdentity) -> Bool {
        device == other.device && inode == other.inode && size == other.size
            && modified == other.modified
    }

    /// Returns whether a change now would give the file another identity, since its last change was more than a second
    /// before `now`, in seconds since 1970.
    package func hasSettled(at now: Int64) -> Bool {
        max(changed, modified) / 1_000_000_000 < now - 1
    }

    private static func nanoseconds(_ time: timespec) -> Int64 {
        Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec)
    }
}

extension File {
    /// Returns the identity and state of the file.
    public func identity() throws(FileError) -> FileIdentity {
        var status = stat()
        _ = try Directory.attempt("inspect", at: path) {
            unsafe fstat(descriptor.rawValue, &status)
        }
        return FileIdentity(status)
    }
}

extension Directory {
    /// Returns the identity and state of `name` below the directory, without following a link, or `nil` if it does
    /// not exist.
    package func identity(of name: FilePath) throws(FileError) -> FileIdentity? {
        var status = stat()
        do {
            try unsafe onParent(of: name, operation: "inspect") { parent, last in
                unsafe fstatat(parent, last, &status, AT_SYMLINK_NOFOLLOW)
            }
            return FileIdentity(status)
        } catch  where error.errno == .noSuchFileOrDirectory {
            return nil
        }
    }

    /// Returns the identity and state of the directory.
    public func identity() throws(FileError) -> FileIdentity {
        var status = stat()
        _ = try Self.attempt("inspect", at: path) { unsafe fstat(descriptor.rawValue, &status) }
        return FileIdentity(status)
    }
}

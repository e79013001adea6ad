import CLinux
import Glibc
public import SystemPackage

/// The status of a file, from stat(2) or lstat(2).
public struct FileStatus: Equatable, Sendable {
    /// The type of a file.
    public enum Kind: Equatable, Sendable {
        case file
        case directory
        case link
        /// A device, fifo or socket.
        case other
    }

    /// The file type.
    public var kind: Kind
    /// The size in bytes, never negative.
    public var size: Int64
    /// The bytes that the file system has allocated for the file, never negative; at most `Int64.max`, whatever
    /// number of blocks the file system reports.
    public var allocatedSize: Int64
    /// The permission bits, including set-id and sticky bits.
    public var mode: UInt32
    /// The inode number.
    public var inode: UInt64
    /// The device number of the file system.
    public var device: UInt64
    /// The user id of the owner.
    public var owner: UInt32
    /// The group id of the file.
    public var group: UInt32
    /// The number of hard links.
    public var linkCount: UInt64
    /// The modification time of the content, in seconds since 1970.
    public var modified: Int64
    /// The access time, in seconds since 1970, as far as the mount options keep it.
    public var accessed: Int64
    /// The time of the last change of the content or the attributes, in seconds since 1970.
    public var changed: Int64
    /// `true` if the content was read after that change, as far as the mount options keep access times.
    ///
    /// With `relatime`, too: it keeps the first read after a change. Copying a file is a change.
    public var wasReadSinceChange: Bool

    init(_ status: stat) {
        kind =
            switch status.st_mode & S_IFMT {
            case S_IFREG: .file
            case S_IFDIR: .directory
            case S_IFLNK: .link
            default: .other
            }
        // A file system in user space reports any numbers (fuse(4)).
        size = max(0, Int64(status.st_size))
        let (bytes, overflows) = max(0, Int64(status.st_blocks)).multipliedReportingOverflow(
            by: 512
        )
        allocatedSize = overflows ? .max : bytes
        mode = status.st_mode & 0o7777
        inode = UInt64(status.st_ino)
        linkCount = UInt64(status.st_nlink)
        device = UInt64(status.st_dev)
        owner = status.st_uid
        group = status.st_gid
        modified = Int64(status.st_mtim.tv_sec)
        accessed = Int64(status.st_atim.tv_sec)
        changed = Int64(status.st_ctim.tv_sec)
        wasReadSinceChange =
            (status.st_atim.tv_sec, status.st_atim.tv_nsec)
            > (status.st_ctim.tv_sec, status.st_ctim.tv_nsec)
    }

    /// Returns whether the permission bits differ from `mode` and this user may change them.
    func canChangeMode(to mode: FilePermissions) -> Bool {
        let user = geteuid()
        return self.mode != UInt32(mode.rawValue) && (user == 0 || user == owner)
    }

    /// The reason why users other than this one and root may change the file, as a fragment; `nil` if they
    /// may not.
    ///
    /// For files that decide whom this user trusts. Considers owner and permission bits, and ACLs as far as
    /// these show them, but not the parent directories.
    public var foreignWriter: String? {
        let user = geteuid()
        guard owner == 0 || owner == user else {
            let expected = user == 0 ? "root" : "root or user \(user)"
            return "expected a file of \(expected), found one of user \(owner)"
        }
        guard mode & 0o022 != 0 else { return nil }
        return "expected a file that its owner alone can write, found mode 0"
            + String(mode, radix: 8)
    }

    /// Commands that leave the file at `path` to root or this user, where ``foreignWriter`` names a reason.
    public func commandsForOwner(of path: FilePath) -> String {
        let isPlain = path.string.utf8.allSatisfy { byte in
            switch byte {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
            default: "/._-+".utf8.contains(byte)
            }
        }
        let name = isPlain ? path.string : "FILE"
        let isOwned = owner == 0 || owner == geteuid()
        return [
            isOwned ? nil : "chown root \(name)",
            mode & 0o022 == 0 ? nil : "chmod go-w \(name)",
        ].compactMap(\.self).joined(separator: " && ")
    }

    /// Indicates whether the owner may execute the file.
    public var isExecutable: Bool { mode & 0o100 != 0 }
}

extension FileStatus {
    /// Returns whether a file exists at `path`, following links.
    public static func exists(_ path: FilePath) -> Bool {
        unsafe path.withPlatformString { unsafe access($0, F_OK) } == 0
    }

    /// Returns whether a file or a link exists at `path`; does not follow the link.
    public static func existsAsEntry(_ path: FilePath) -> Bool {
        var status = stat()
        return unsafe path.withPlatformString { unsafe lstat($0, &status) } == 0
    }

    /// Returns whether the entry at `path` is a symbolic link.
    package static func isSymbolicLink(_ path: FilePath) -> Bool {
        var status = stat()
        guard unsafe path.withPlatformString({ unsafe lstat($0, &status) }) == 0 else {
            return false
        }
        return FileStatus(status).kind == .link
    }

    /// Returns whether this process may execute the file at `path`, following links.
    public static func isExecutable(_ path: FilePath) -> Bool {
        unsafe path.withPlatformString { unsafe access($0, X_OK) } == 0
    }

    /// Reads the status of the file at a path, following links; `nil` on an error, which errno(3) holds.
    public init?(following path: FilePath) {
        var status = stat()
        guard unsafe path.withPlatformString({ unsafe stat($0, &status) }) == 0 else { return nil }
        self.init(status)
    }

    /// Reads the status of an open file; `nil` on an error, which errno(3) holds.
    public init?(of file: FileDescriptor) {
        var status = stat()
        guard unsafe fstat(file.rawValue, &status) == 0 else { return nil }
        self.init(status)
    }
}

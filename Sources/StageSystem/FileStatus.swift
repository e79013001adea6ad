import CLinux
import Glibc
public import SystemPackage

/// What a name stands for, as lstat(2) tells.
public struct FileStatus: Equatable, Sendable {
    /// What kind of thing it is.
    public enum Kind: Equatable, Sendable {
        case file
        case directory
        case link
        /// A device, fifo or socket.
        case other
    }

    /// What kind of thing it is.
    public var kind: Kind
    /// The size in bytes.
    public var size: Int64
    /// The bytes that the file system has allocated.
    public var allocatedSize: Int64
    /// The permission bits, set-id bits included.
    public var mode: UInt32
    /// The number of the file within its file system.
    public var inode: UInt64
    /// The number of its file system.
    public var device: UInt64
    /// The number of the user that the file belongs to.
    public var owner: UInt32
    /// The number of the group that the file belongs to.
    public var group: UInt32
    /// How many names the file has.
    public var linkCount: UInt64
    /// When the content last changed, in seconds since 1970.
    public var modified: Int64
    /// When the content was last read, as far as the file system is mounted to keep that, in seconds
    /// since 1970.
    public var accessed: Int64

    init(_ status: stat) {
        kind =
            switch status.st_mode & S_IFMT {
            case S_IFREG: .file
            case S_IFDIR: .directory
            case S_IFLNK: .link
            default: .other
            }
        size = Int64(status.st_size)
        allocatedSize = Int64(status.st_blocks) * 512
        mode = status.st_mode & 0o7777
        inode = UInt64(status.st_ino)
        linkCount = UInt64(status.st_nlink)
        device = UInt64(status.st_dev)
        owner = status.st_uid
        group = status.st_gid
        modified = Int64(status.st_mtim.tv_sec)
        accessed = Int64(status.st_atim.tv_sec)
    }

    /// Whether this user may give it other permission bits than it has, and `mode` is such.
    func needs(_ mode: FilePermissions) -> Bool {
        let user = geteuid()
        return self.mode != UInt32(mode.rawValue) && (user == 0 || user == owner)
    }

    /// The reason why users other than this one and root may change the file, as a fragment; `nil` if they may not.
    ///
    /// For text that decides whom this user trusts. Owner and permission bits count, and ACLs as far as these show
    /// them; the directories above do not.
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

    /// Whether the owner may execute it.
    public var isExecutable: Bool { mode & 0o100 != 0 }
}

extension FileStatus {
    /// Whether something is at `path`, links followed.
    public static func exists(_ path: FilePath) -> Bool {
        unsafe path.withPlatformString { unsafe access($0, F_OK) } == 0
    }

    /// Whether this process may execute what is at `path`, links followed.
    public static func isExecutable(_ path: FilePath) -> Bool {
        unsafe path.withPlatformString { unsafe access($0, X_OK) } == 0
    }

    /// Looks at what is at a path, links followed; `nil` if the kernel refuses, with the reason in errno(3).
    public init?(following path: FilePath) {
        var status = stat()
        guard unsafe path.withPlatformString({ unsafe stat($0, &status) }) == 0 else { return nil }
        self.init(status)
    }

    /// Looks at an open file; `nil` if the kernel refuses, with the reason in errno(3).
    public init?(of file: FileDescriptor) {
        var status = stat()
        guard unsafe fstat(file.rawValue, &status) == 0 else { return nil }
        self.init(status)
    }

    /// Looks at `name` in an open directory, without following a link; `nil` if the kernel refuses.
    @unsafe public init?(_ name: UnsafePointer<CChar>, in directory: FileDescriptor) {
        var status = stat()
        guard unsafe fstatat(directory.rawValue, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else {
            return nil
        }
        self.init(status)
    }
}

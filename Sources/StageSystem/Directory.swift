import CLinux
import Glibc
public import SystemPackage

/// An open directory, through which everything below it is reached.
///
/// Names are resolved below the directory only: no path leads out of it and no symbolic link is
/// followed (openat2(2) with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`), so what somebody else does to
/// the tree cannot redirect a write. The directory is closed when the last reference goes.
public final class Directory: Sendable {
    /// Where the directory was opened; for messages.
    public let path: FilePath
    /// The open directory.
    ///
    /// It stays owned by this value.
    public let descriptor: FileDescriptor

    /// Takes over an open directory.
    public init(adopting descriptor: FileDescriptor, path: FilePath) {
        self.descriptor = descriptor
        self.path = path
    }

    deinit {
        // A directory that was only read has nothing to lose when close(2) fails.
        try? descriptor.close()
    }

    /// Opens the directory at `path`, following symbolic links in it.
    public static func open(_ path: FilePath) throws(FileError) -> Directory {
        let descriptor = try Self.attempt("open", path) {
            unsafe path.withPlatformString { unsafe stage_open_directory($0) }
        }
        return Directory(adopting: FileDescriptor(rawValue: descriptor), path: path)
    }

    /// Opens the directory at `path`, making it and those above it where they are missing.
    public static func make(
        _ path: FilePath,
        permissions: FilePermissions = .directory
    ) throws(FileError) -> Directory {
        do {
            return try open(path)
        } catch  where error.errno == .noSuchFileOrDirectory {
            try makeMissing(path, permissions)
            return try open(path)
        }
    }

    /// Makes the directory at `path` and, before it, those above it that are missing.
    private static func makeMissing(
        _ path: FilePath,
        _ permissions: FilePermissions
    ) throws(FileError) {
        let above = path.removingLastComponent()
        do {
            do {
                try makeOne(path, permissions)
            } catch
                where error.errno == .noSuchFileOrDirectory && !above.isEmpty && above != path
            {
                try makeMissing(above, permissions)
                try makeOne(path, permissions)
            }
        } catch  where error.errno == .fileExists || error.errno == .readOnlyFileSystem {
            // Already there, or reported by the call that opens it.
        }
    }

    private static func makeOne(
        _ path: FilePath,
        _ permissions: FilePermissions
    ) throws(FileError) {
        _ = try Self.attempt("create", path) {
            unsafe path.withPlatformString { unsafe mkdir($0, permissions.rawValue) }
        }
    }

    /// Opens the directory at `name` below this one, or returns `nil` if there is none.
    public func directory(_ name: FilePath) throws(FileError) -> Directory? {
        do {
            let file = try openFile(name, O_RDONLY | O_DIRECTORY, 0)
            return Directory(adopting: file, path: path.pushing(name))
        } catch  where error.errno == .noSuchFileOrDirectory {
            return nil
        }
    }

    /// Opens the directory `name`, or returns `nil` if there is none.
    ///
    /// One that another file system is mounted on is refused with `EXDEV`, before that is asked
    /// anything: users mount file systems of their own on directories that are theirs (fuse(4)).
    public func directory(unmounted name: FilePath.Component) throws(FileError) -> Directory? {
        do {
            let flags = O_RDONLY | O_DIRECTORY
            let file = try openFile(FilePath(name), flags, 0, resolve: RESOLVE_NO_XDEV)
            return Directory(adopting: file, path: path.appending(name))
        } catch  where error.errno == .noSuchFileOrDirectory {
            return nil
        }
    }

    /// Opens the directory at `name` below this one, making it (but not those above it) where it is
    /// missing.
    public func makeDirectory(
        _ name: FilePath,
        permissions: FilePermissions = .directory
    ) throws(FileError) -> Directory {
        try createDirectory(name, permissions: permissions)
        let file = try openFile(name, O_RDONLY | O_DIRECTORY, 0)
        return Directory(adopting: file, path: path.pushing(name))
    }

    /// Makes a directory whose parent exists, and returns whether it was missing.
    @discardableResult
    public func createDirectory(
        _ name: FilePath,
        permissions: FilePermissions = .directory
    ) throws(FileError) -> Bool {
        do {
            try unsafe onParent(of: name, "create") { parent, last in
                unsafe mkdirat(parent, last, permissions.rawValue)
            }
            return true
        } catch  where error.errno == .fileExists {
            return false
        }
    }

    /// Opens the file at `name` for reading, or returns `nil` if there is none.
    ///
    /// - Throws: ``FileError`` with ``FileError/isNotRegularFile`` if it is a fifo, a device, a socket
    ///   or a directory: the call never waits for another process.
    public func file(reading name: FilePath) throws(FileError) -> File? {
        do {
            return try openRegularFile(name, O_RDONLY)
        } catch  where error.errno == .noSuchFileOrDirectory {
            return nil
        }
    }

    /// Creates the file at `name`, which must not exist, for writing and reading.
    public func file(
        creating name: FilePath,
        permissions: FilePermissions = .file
    ) throws(FileError) -> File {
        let file = try openFile(name, O_RDWR | O_CREAT | O_EXCL, permissions.rawValue)
        return File(adopting: file, path: path.pushing(name))
    }

    /// Opens the regular file at `name` for writing and reading, and creates it where it is missing.
    public func file(
        updating name: FilePath,
        permissions: FilePermissions = .file
    ) throws(FileError) -> File {
        try openRegularFile(name, O_RDWR | O_CREAT, permissions.rawValue)
    }

    /// Opens the regular file at `name` for writing and reading, or returns `nil` if there is none.
    public func file(updatingExisting name: FilePath) throws(FileError) -> File? {
        do {
            return try openRegularFile(name, O_RDWR)
        } catch  where error.errno == .noSuchFileOrDirectory {
            return nil
        }
    }

    /// Whether this process may make names in the directory.
    public var isWritable: Bool {
        unsafe faccessat(descriptor.rawValue, ".", W_OK, 0) == 0
    }

    /// Makes a symbolic link at `name`, which must not exist.
    public func createLink(_ name: FilePath, to target: String) throws(FileError) {
        try unsafe onParent(of: name, "create") { parent, last in
            unsafe symlinkat(target, parent, last)
        }
    }

    /// Gives the file at `name` in another directory of the file system a second name here, which must
    /// not exist.
    public func createHardLink(
        _ newName: FilePath,
        to name: FilePath,
        in directory: Directory
    ) throws(FileError) {
        try unsafe directory.onParent(of: name, "link") { from, last in
            // -1 with errno set, as a system call returns it.
            do throws(FileError) {
                try unsafe onParent(of: newName, "link") { parent, newLast in
                    unsafe linkat(from, last, parent, newLast, 0)
                }
                return 0
            } catch {
                errno = error.errno.rawValue
                return -1
            }
        }
    }

    /// Renames `name` to `newName` in `directory`, in one step; what stood there is replaced unless
    /// `replacing` is `false`, in which case it is an error (`EEXIST`).
    public func rename(
        _ name: FilePath.Component,
        to newName: FilePath.Component,
        in directory: Directory,
        replacing: Bool = true
    ) throws(FileError) {
        _ = try Self.attempt("rename", path.appending(name)) {
            unsafe name.withPlatformString { from in
                unsafe newName.withPlatformString { to in
                    unsafe stage_renameat2(
                        descriptor.rawValue,
                        from,
                        directory.descriptor.rawValue,
                        to,
                        replacing ? 0 : UInt32(RENAME_NOREPLACE)
                    )
                }
            }
        }
    }

    /// Removes the file or link `name`, and returns whether there was one.
    @discardableResult
    public func remove(_ name: FilePath.Component) throws(FileError) -> Bool {
        try remove(name, flags: 0)
    }

    /// Removes the file or link at `name` below this directory, which exists.
    public func removeFile(_ name: FilePath) throws(FileError) {
        try unsafe onParent(of: name, "remove") { parent, last in
            unsafe unlinkat(parent, last, 0)
        }
    }

    /// Sets the permission bits of this directory, whatever the umask.
    public func setMode(_ mode: FilePermissions) throws(FileError) {
        _ = try Self.attempt("change", path) { fchmod(descriptor.rawValue, mode.rawValue) }
    }

    /// Removes the empty directory `name`, and returns whether there was one.
    @discardableResult
    public func removeDirectory(_ name: FilePath.Component) throws(FileError) -> Bool {
        try remove(name, flags: AT_REMOVEDIR)
    }

    private func remove(_ name: FilePath.Component, flags: CInt) throws(FileError) -> Bool {
        do {
            _ = try Self.attempt("remove", path.appending(name)) {
                unsafe name.withPlatformString { unsafe unlinkat(descriptor.rawValue, $0, flags) }
            }
            return true
        } catch  where error.errno == .noSuchFileOrDirectory {
            return false
        }
    }

    /// Returns what `name` below this directory is, without following a link, or `nil` if nothing is
    /// there.
    public func status(_ name: FilePath) throws(FileError) -> FileStatus? {
        var status = stat()
        do {
            try unsafe onParent(of: name, "look at") { parent, last in
                unsafe fstatat(parent, last, &status, AT_SYMLINK_NOFOLLOW)
            }
            return FileStatus(status)
        } catch  where error.errno == .noSuchFileOrDirectory {
            return nil
        }
    }

    /// Waits until the names in this directory are on disk.
    public func synchronize() throws(FileError) {
        _ = try Self.attempt("synchronize", path) { fsync(descriptor.rawValue) }
    }

    /// Waits until everything in the file system that holds this directory is on disk.
    ///
    /// One call for a tree of any size: cheaper than a call for each file from a handful on.
    public func synchronizeFileSystem() throws(FileError) {
        _ = try Self.attempt("synchronize", path) { stage_syncfs(descriptor.rawValue) }
    }

    /// Opens `name` below this directory, with the flags of open(2) and further ones of openat2(2).
    func openFile(
        _ name: FilePath,
        _ flags: CInt,
        _ mode: CInterop.Mode,
        resolve: CInt = 0
    ) throws(FileError) -> FileDescriptor {
        let file = try Self.attempt("open", path.pushing(name)) {
            unsafe name.withPlatformString { name in
                unsafe stage_openat2(
                    descriptor.rawValue,
                    name,
                    UInt64(flags | O_CLOEXEC | O_NOFOLLOW),
                    flags & O_CREAT == 0 ? 0 : UInt64(mode),
                    UInt64(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | resolve)
                )
            }
        }
        return FileDescriptor(rawValue: file)
    }

    /// Opens the regular file `name` below this directory, with the flags of open(2).
    ///
    /// A fifo or a device at that name is neither waited for nor used; it is an error.
    func openRegularFile(
        _ name: FilePath,
        _ flags: CInt,
        _ mode: CInterop.Mode = 0
    ) throws(FileError) -> File {
        let place = path.pushing(name)
        let descriptor: FileDescriptor
        do {
            descriptor = try openFile(name, flags | O_NONBLOCK | O_NOCTTY, mode)
        } catch
            where error.errno == .tooManySymbolicLinkLevels || error.errno == .noSuchAddressOrDevice
        {
            throw FileError(notRegular: place)
        }
        let file = File(adopting: descriptor, path: place)
        guard try file.status().kind == .file else { throw FileError(notRegular: place) }
        return file
    }

    /// Calls `body` with the open directory that holds `name`, and the last component of `name`.
    private func onParent(
        of name: FilePath,
        _ operation: String,
        _ body: (CInt, UnsafePointer<CChar>) -> CInt
    ) throws(FileError) {
        // A single component, as nearly all names are, needs no other directory. FilePath's views of components are slow.
        let isComponent = unsafe name.withPlatformString {
            unsafe $0.pointee != 0 && strchr($0, CInt(UInt8(ascii: "/"))) == nil
        }
        if isComponent {
            _ = try Self.attempt(operation, path.pushing(name)) {
                unsafe name.withPlatformString { unsafe body(descriptor.rawValue, $0) }
            }
            return
        }
        guard let last = name.lastComponent else {
            throw FileError(operation, path.pushing(name), .invalidArgument)
        }
        let above = name.removingLastComponent()
        let parent = try openFile(above, O_RDONLY | O_DIRECTORY, 0)
        // Opened for this call alone; nothing was written through it.
        defer { try? parent.close() }
        _ = try Self.attempt(operation, path.pushing(name)) {
            unsafe last.withPlatformString { unsafe body(parent.rawValue, $0) }
        }
    }

    /// Makes a system call, again when a signal interrupted it, and turns -1 into an error.
    @discardableResult
    static func attempt(
        _ operation: String,
        _ path: @autoclosure () -> FilePath,
        _ call: () -> CInt
    ) throws(FileError) -> CInt {
        while true {
            let result = call()
            if result >= 0 { return result }
            let reason = Errno(rawValue: errno)
            if reason != .interrupted { throw FileError(operation, path(), reason) }
        }
    }
}

extension FilePermissions {
    /// What files of a container are created with, before the umask: `0644`.
    public static let file = FilePermissions(rawValue: 0o644)
    /// What directories of a container are created with, before the umask: `0755`.
    public static let directory = FilePermissions(rawValue: 0o755)
    /// Permissions of files that are private to their owner: `0600`.
    public static let privateFile = FilePermissions(rawValue: 0o600)
    /// Permissions of directories that are private to their owner: `0700`.
    public static let privateDirectory = FilePermissions(rawValue: 0o700)
    /// What executable files of a pack are created with, before the umask: `0755`.
    public static let executable = FilePermissions(rawValue: 0o755)
}

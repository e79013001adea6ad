import CLinux
import Glibc
public import SystemPackage

/// An open directory, through which all files below it are opened.
///
/// Names are resolved below the directory only: paths cannot leave it, and symbolic links are not followed
/// (openat2(2) with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`), so other processes that change the tree cannot
/// redirect a write. Releasing the last reference closes the directory.
public final class Directory: Sendable {
    /// The path that the directory was opened with, for messages.
    public let path: FilePath
    /// The descriptor of the directory, owned by this value.
    public let descriptor: FileDescriptor

    /// Takes ownership of an open directory.
    public init(adopting descriptor: FileDescriptor, path: FilePath) {
        self.descriptor = descriptor
        self.path = path
    }

    deinit {
        // An error of close(2) is ignored: the directory was opened for reading only.
        try? descriptor.close()
    }

    /// Opens the directory at `path`, following symbolic links.
    public static func open(_ path: FilePath) throws(FileError) -> Directory {
        let descriptor = try Self.attempt("open", at: path) {
            unsafe path.withPlatformString { unsafe stage_open_directory($0) }
        }
        return Directory(adopting: FileDescriptor(rawValue: descriptor), path: path)
    }

    /// Opens the directory at `path`, and creates it and its missing parents.
    public static func make(
        _ path: FilePath,
        permissions: FilePermissions = .directory
    ) throws(FileError) -> Directory {
        do {
            return try open(path)
        } catch  where error.errno == .noSuchFileOrDirectory {
            try makeMissing(path, permissions: permissions)
            return try open(path)
        }
    }

    /// Creates the directory at `path` and its missing parents.
    private static func makeMissing(
        _ path: FilePath,
        permissions: FilePermissions
    ) throws(FileError) {
        let above = path.removingLastComponent()
        do {
            do {
                try makeOne(path, permissions: permissions)
            } catch
                where error.errno == .noSuchFileOrDirectory && !above.isEmpty && above != path
            {
                try makeMissing(above, permissions: permissions)
                try makeOne(path, permissions: permissions)
            }
        } catch  where error.errno == .fileExists {
            // The directory exists already, or opening it reports the error.
        } catch  where error.errno == .readOnlyFileSystem && FileStatus.exists(path) {
            // Some file systems refuse before they look at the name.
        }
    }

    private static func makeOne(
        _ path: FilePath,
        permissions: FilePermissions
    ) throws(FileError) {
        _ = try Self.attempt("create", at: path) {
            unsafe path.withPlatformString { unsafe mkdir($0, permissions.rawValue) }
        }
    }

    /// Opens the directory at `name` below this one, or returns `nil` if there is none.
    public func directory(_ name: FilePath) throws(FileError) -> Directory? {
        do {
            let file = try openFile(name, flags: O_RDONLY | O_DIRECTORY, mode: 0)
            return Directory(adopting: file, path: path.pushing(name))
        } catch  where error.errno == .noSuchFileOrDirectory {
            return nil
        }
    }

    /// Opens the directory `name`, or returns `nil` if it does not exist.
    ///
    /// Refuses a mount point with `EXDEV`, before any request reaches the mounted file system: users can
    /// mount file systems of their own on their directories (fuse(4)).
    public func directory(unmounted name: FilePath.Component) throws(FileError) -> Directory? {
        do {
            let flags = O_RDONLY | O_DIRECTORY
            let file = try openFile(FilePath(name), flags: flags, mode: 0, resolve: RESOLVE_NO_XDEV)
            return Directory(adopting: file, path: path.appending(name))
        } catch  where error.errno == .noSuchFileOrDirectory {
            return nil
        }
    }

    /// Opens the directory at `name` below this one, and creates it, but not its parents, if it does not
    /// exist.
    public func makeDirectory(
        _ name: FilePath,
        permissions: FilePermissions = .directory
    ) throws(FileError) -> Directory {
        try createDirectory(name, permissions: permissions)
        let file = try openFile(name, flags: O_RDONLY | O_DIRECTORY, mode: 0)
        return Directory(adopting: file, path: path.pushing(name))
    }

    /// Creates a directory whose parent exists, and returns whether it did not exist before.
    @discardableResult
    public func createDirectory(
        _ name: FilePath,
        permissions: FilePermissions = .directory
    ) throws(FileError) -> Bool {
        do {
            try unsafe onParent(of: name, operation: "create") { parent, last in
                unsafe mkdirat(parent, last, permissions.rawValue)
            }
            return true
        } catch  where error.errno == .fileExists {
            return false
        }
    }

    /// Opens the file at `name` for reading, or returns `nil` if it does not exist.
    ///
    /// Never waits for another process.
    ///
    /// - Throws: ``FileError`` with ``FileError/isNotRegularFile`` for a FIFO, a device, a socket or a directory.
    public func file(reading name: FilePath) throws(FileError) -> File? {
        do {
            return try openRegularFile(name, flags: O_RDONLY)
        } catch  where error.errno == .noSuchFileOrDirectory {
            return nil
        }
    }

    /// Creates the file at `name`, which must not exist, for reading and writing.
    public func file(
        creating name: FilePath,
        permissions: FilePermissions = .file
    ) throws(FileError) -> File {
        let file = try openFile(name, flags: O_RDWR | O_CREAT | O_EXCL, mode: permissions.rawValue)
        return File(adopting: file, name, in: self)
    }

    /// Opens the regular file at `name` for reading and writing, and creates it if it does not exist.
    public func file(
        updating name: FilePath,
        permissions: FilePermissions = .file
    ) throws(FileError) -> File {
        try openRegularFile(name, flags: O_RDWR | O_CREAT, mode: permissions.rawValue)
    }

    /// Opens the regular file at `name` for reading and writing, or returns `nil` if it does not exist.
    public func file(updatingExisting name: FilePath) throws(FileError) -> File? {
        do {
            return try openRegularFile(name, flags: O_RDWR)
        } catch  where error.errno == .noSuchFileOrDirectory {
            return nil
        }
    }

    /// Indicates whether this process may create files in the directory.
    public var isWritable: Bool {
        unsafe faccessat(descriptor.rawValue, ".", W_OK, 0) == 0
    }

    /// `true` if the file system is mounted read-only.
    public var isOnReadOnlyFileSystem: Bool {
        unsafe faccessat(descriptor.rawValue, ".", W_OK, 0) != 0 && errno == EROFS
    }

    /// Creates a symbolic link at `name`, which must not exist.
    public func createLink(_ name: FilePath, to target: String) throws(FileError) {
        try unsafe onParent(of: name, operation: "create") { parent, last in
            unsafe symlinkat(target, parent, last)
        }
    }

    /// Creates a hard link `newName`, which must not exist, to the file `name` of another directory of the
    /// same file system.
    public func createHardLink(
        _ newName: FilePath,
        to name: FilePath,
        in directory: Directory
    ) throws(FileError) {
        try unsafe directory.onParent(of: name, operation: "link") { from, last in
            // Returns -1 with errno set, like a system call.
            do throws(FileError) {
                try unsafe onParent(of: newName, operation: "link") { parent, newLast in
                    unsafe linkat(from, last, parent, newLast, 0)
                }
                return 0
            } catch {
                errno = error.errno.rawValue
                return -1
            }
        }
    }

    /// Renames `name` to `newName` in `directory`, atomically.
    ///
    /// Replaces an existing `newName`, unless `replacing` is `false`: then it is an error (`EEXIST`), and so is a file system
    /// that cannot tell (`EINVAL`), as FUSE's often, NFS and 9p.
    public func rename(
        _ name: FilePath.Component,
        to newName: FilePath.Component,
        in directory: Directory,
        replacing: Bool = true
    ) throws(FileError) {
        _ = try Self.attempt("rename", at: path.appending(name)) {
            unsafe name.withPlatformString { from in
                unsafe newName.withPlatformString { to in
                    let target = directory.descriptor.rawValue
                    guard !replacing else {
                        return unsafe renameat(descriptor.rawValue, from, target, to)
                    }
                    return unsafe stage_renameat2(
                        descriptor.rawValue,
                        from,
                        target,
                        to,
                        UInt32(RENAME_NOREPLACE)
                    )
                }
            }
        }
    }

    /// Removes the file or link `name`, and returns whether it existed.
    @discardableResult
    public func remove(_ name: FilePath.Component) throws(FileError) -> Bool {
        try remove(name, flags: 0)
    }

    /// Removes the file or link at `name` below this directory, which must exist.
    public func removeFile(_ name: FilePath) throws(FileError) {
        try unsafe onParent(of: name, operation: "remove") { parent, last in
            unsafe unlinkat(parent, last, 0)
        }
    }

    /// Sets the permission bits of this directory, ignoring the umask.
    public func setMode(_ mode: FilePermissions) throws(FileError) {
        _ = try Self.attempt("change", at: path) { fchmod(descriptor.rawValue, mode.rawValue) }
    }

    /// Removes the empty directory `name`, and returns whether it existed.
    @discardableResult
    public func removeDirectory(_ name: FilePath.Component) throws(FileError) -> Bool {
        try remove(name, flags: AT_REMOVEDIR)
    }

    private func remove(_ name: FilePath.Component, flags: CInt) throws(FileError) -> Bool {
        let result = try Self.attemptIfPresent("remove", at: path.appending(name)) {
            unsafe name.withPlatformString { unsafe unlinkat(descriptor.rawValue, $0, flags) }
        }
        return result != nil
    }

    /// Removes a file or link of this directory, if it still exists.
    func remove(_ entry: DirectoryEntry) throws(FileError) {
        _ = try Self.attemptIfPresent("remove", at: path.pushing(entry.path)) {
            unsafe entry.path.withPlatformString {
                unsafe unlinkat(descriptor.rawValue, $0, 0)
            }
        }
    }

    /// Returns the status of `name` below this directory, without following a link, or `nil` if it does not
    /// exist.
    public func status(_ name: FilePath) throws(FileError) -> FileStatus? {
        var status = stat()
        var exists = true
        do {
            try unsafe onParent(of: name, operation: "inspect") { parent, last in
                let result = unsafe fstatat(parent, last, &status, AT_SYMLINK_NOFOLLOW)
                guard result < 0, errno == ENOENT else { return result }
                exists = false
                return 0
            }
            return exists ? FileStatus(status) : nil
        } catch  where error.errno == .noSuchFileOrDirectory {
            // A directory above it does not exist.
            return nil
        }
    }

    /// Returns the status of the file `name`, without following a link, or `nil` if it does not exist.
    ///
    /// Refuses a mount point with `EXDEV`, before any request reaches the mounted file system: users can
    /// mount file systems of their own on each of their files (fuse(4)), which never answer.
    package func status(unmounted name: FilePath.Component) throws(FileError) -> FileStatus? {
        do {
            let file = FilePath(name)
            let descriptor = try openFile(file, flags: O_PATH, mode: 0, resolve: RESOLVE_NO_XDEV)
            return try File(adopting: descriptor, file, in: self).status()
        } catch  where error.errno == .noSuchFileOrDirectory {
            return nil
        }
    }

    /// Returns whether `name` is a directory, without following a link.
    ///
    /// Sends no request to a file system that is mounted there, so it does not tell the owner: users can mount
    /// file systems of their own on their directories (fuse(4)), which never answer.
    package func hasDirectory(_ name: FilePath.Component) -> Bool {
        // A program cannot use a directory that cannot be opened.
        guard let file = try? openFile(FilePath(name), flags: O_PATH | O_DIRECTORY, mode: 0) else {
            return false
        }
        // Closing loses no data: nothing was written.
        try? file.close()
        return true
    }

    /// Waits until the entries of this directory are on disk (fsync(2)).
    public func synchronize() throws(FileError) {
        _ = try Self.attempt("synchronize", at: path) { fsync(descriptor.rawValue) }
    }

    /// Waits until all data of the file system that contains this directory is on disk (syncfs(2)).
    ///
    /// One call for a tree of any size: cheaper than an fsync(2) for each file, from a handful of files on.
    public func synchronizeFileSystem() throws(FileError) {
        _ = try Self.attempt("synchronize", at: path) { stage_syncfs(descriptor.rawValue) }
    }

    /// Opens `name` below this directory with flags of open(2) and additional resolve flags of openat2(2).
    func openFile(
        _ name: FilePath,
        flags: CInt,
        mode: CInterop.Mode,
        resolve: CInt = 0
    ) throws(FileError) -> FileDescriptor {
        let file = try Self.attempt("open", at: path.pushing(name)) {
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

    /// Opens the regular file `name` below this directory with flags of open(2).
    ///
    /// Throws for a FIFO or a device, and does not wait for it.
    func openRegularFile(
        _ name: FilePath,
        flags: CInt,
        mode: CInterop.Mode = 0
    ) throws(FileError) -> File {
        let descriptor: FileDescriptor
        do {
            descriptor = try openFile(name, flags: flags | O_NONBLOCK | O_NOCTTY, mode: mode)
        } catch
            where error.errno == .tooManySymbolicLinkLevels || error.errno == .noSuchAddressOrDevice
        {
            throw FileError(notRegular: path.pushing(name))
        }
        let file = File(adopting: descriptor, name, in: self)
        guard try file.status().kind == .file else { throw FileError(notRegular: file.path) }
        return file
    }
}

extension FilePermissions {
    /// Permissions with which files of a container are created, before the umask: `0644`.
    public static let file = FilePermissions(rawValue: 0o644)
    /// Permissions with which directories of a container are created, before the umask: `0755`.
    public static let directory = FilePermissions(rawValue: 0o755)
    /// Permissions of files that only their owner may access: `0600`.
    public static let privateFile = FilePermissions(rawValue: 0o600)
    /// Permissions of directories that only their owner may access: `0700`.
    public static let privateDirectory = FilePermissions(rawValue: 0o700)
    /// Permissions with which executable files of a pack are created, before the umask: `0755`.
    public static let executable = FilePermissions(rawValue: 0o755)
}

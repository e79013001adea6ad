import CLinux
import Glibc
public import SystemPackage

extension Directory {
    /// Opens the directory at `path`, and creates it and its missing parents with exactly these permission
    /// bits, ignoring the umask.
    public static func make(
        _ path: FilePath,
        exactly mode: FilePermissions
    ) throws(FileError) -> Directory {
        if !FileStatus.exists(path), let name = path.lastComponent {
            let above = path.removingLastComponent()
            let parent = try make(above.isEmpty ? "." : above, exactly: mode)
            if try parent.createDirectory(FilePath(name), permissions: mode) {
                _ = try parent.makeDirectory(FilePath(name), exactly: mode)
            }
        }
        return try open(path)
    }

    /// Opens the directory at `name` below this one, and creates it if it does not exist, with exactly these
    /// permission bits, ignoring the umask.
    ///
    /// Also sets the permission bits of an existing directory, unless it belongs to another user: a process
    /// may have died between creating it and setting them.
    public func makeDirectory(
        _ name: FilePath,
        exactly mode: FilePermissions
    ) throws(FileError) -> Directory {
        let made = try makeDirectory(name, permissions: mode)
        if try made.status().canChangeMode(to: mode) { try made.setMode(mode) }
        return made
    }

    /// Opens the regular file at `name` for reading and writing, and creates it if it does not exist, with
    /// exactly these permission bits, ignoring the umask.
    ///
    /// Also sets the permission bits of an existing file, unless it belongs to another user.
    public func file(
        updating name: FilePath,
        exactly mode: FilePermissions
    ) throws(FileError) -> File {
        let file = try file(updating: name, permissions: mode)
        try file.ensureMode(mode)
        return file
    }

    /// Sets the permission bits of a socket of this process's user; never follows a link.
    ///
    /// - Throws: ``FileError`` with `EPERM` if `name` is another kind of file, or another user's.
    public func setMode(
        ofSocket name: FilePath.Component,
        to mode: FilePermissions
    ) throws(FileError) {
        let socket = try openFile(FilePath(name), flags: O_PATH, mode: 0)
        // Nothing was written.
        defer { try? socket.close() }
        var status = stat()
        _ = try Self.attempt("change", at: path.appending(name)) {
            guard unsafe fstat(socket.rawValue, &status) == 0 else { return -1 }
            guard status.st_mode & S_IFMT == S_IFSOCK, status.st_uid == geteuid() else {
                errno = EPERM
                return -1
            }
            // fchmod(2) does not take a descriptor of O_PATH.
            return unsafe chmod("/proc/self/fd/\(socket.rawValue)", mode.rawValue)
        }
    }

    /// Reads the whole regular file at `name`, or returns `nil` if there is none.
    ///
    /// Never waits for another process, and never allocates more than `limit` bytes.
    ///
    /// - Throws: ``FileError`` with ``FileError/isWrongKindOrSize`` if it is not a regular file or has more
    ///   than `limit` bytes.
    public func bytes(of name: FilePath, limit: Int) throws(FileError) -> [UInt8]? {
        try file(reading: name)?.readAll(limit: limit)
    }

    /// Returns the status of the directory itself.
    public func status() throws(FileError) -> FileStatus {
        guard let status = FileStatus(of: descriptor) else {
            throw FileError("inspect", path: path, errno: Errno(rawValue: errno))
        }
        return status
    }
}

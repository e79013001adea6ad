import Glibc
public import SystemPackage

extension Directory {
    /// Opens the directory at `path`, making it and those above it where they are missing; what is made
    /// gets exactly these permission bits, whatever the umask.
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

    /// Opens the directory at `name` below this one, making it where it is missing, with exactly these
    /// permission bits, whatever the umask.
    ///
    /// One that exists gets them too, unless it belongs to another user: a process may have died between
    /// making it and this.
    public func makeDirectory(
        _ name: FilePath,
        exactly mode: FilePermissions
    ) throws(FileError) -> Directory {
        let made = try makeDirectory(name, permissions: mode)
        if try made.status().needs(mode) { try made.setMode(mode) }
        return made
    }

    /// Opens the regular file at `name` for writing and reading, creating it where it is missing, with
    /// exactly these permission bits, whatever the umask.
    ///
    /// One that exists gets them too, unless it belongs to another user.
    public func file(
        updating name: FilePath,
        exactly mode: FilePermissions
    ) throws(FileError) -> File {
        let file = try file(updating: name, permissions: mode)
        try file.settle(mode)
        return file
    }

    /// Reads the whole regular file at `name`, or returns `nil` if there is none.
    ///
    /// Never waits for another process, and never takes memory for more than `limit` bytes.
    ///
    /// - Throws: ``FileError`` of which ``FileError/isWrongKindOrSize`` holds if it is no regular file, or
    ///   has more than `limit` bytes.
    public func bytes(of name: FilePath, limit: Int) throws(FileError) -> [UInt8]? {
        try file(reading: name)?.readAll(limit: limit)
    }

    /// Returns what is known of the directory itself.
    public func status() throws(FileError) -> FileStatus {
        guard let status = FileStatus(of: descriptor) else {
            throw FileError("look at", path, Errno(rawValue: errno))
        }
        return status
    }
}

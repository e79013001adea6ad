import Glibc
package import SystemPackage

/// A lock that uses a separate file beside the resource that it protects.
///
/// A user that may open a file, even only for reading, may lock it and keep it locked (fcntl(2), flock(2)).
/// Others can read the protected resource and its directory, so neither of them is locked. The lock is on a file
/// that only users with write permission for the directory can open: these could replace the resource anyway.
/// The last holder removes the file. A file that a killed process left behind is reused.
package struct LockFile: ~Copyable, Sendable {
    private let directory: Directory
    private let name: FilePath.Component
    private let lock: FileLock

    /// Takes the lock, or returns `nil` if another holder has a conflicting one.
    ///
    /// - Throws: ``FileError``, with ``FileError/isNotRegularFile`` if `name` is not a regular file.
    package static func attempt(
        _ name: FilePath.Component,
        in directory: Directory,
        mode: FileLock.Mode
    ) throws(FileError) -> LockFile? {
        let lock = try FileLock.attempt(name, in: directory, mode: mode) { () throws(FileError) in
            try open(name, in: directory)
        }
        guard let lock else { return nil }
        return LockFile(directory: directory, name: name, lock: lock)
    }

    /// Takes the lock, and waits for other holders at most for `timeout`.
    ///
    /// - Throws: ``FileError`` with ``FileError/isHeldByOthers`` after that time, or when the task is cancelled.
    package static func wait(
        for name: FilePath.Component,
        in directory: Directory,
        mode: FileLock.Mode,
        timeout: Duration
    ) async throws(FileError) -> LockFile {
        let lock = try await FileLock.wait(
            for: name,
            in: directory,
            mode: mode,
            atMost: timeout
        ) { () throws(FileError) in
            try open(name, in: directory)
        }
        guard let lock else { throw FileError(lockedByOthers: directory.path.appending(name)) }
        return LockFile(directory: directory, name: name, lock: lock)
    }

    /// Opens the lock file, and creates it if it does not exist.
    private static func open(
        _ name: FilePath.Component,
        in directory: Directory
    ) throws(FileError) -> File {
        while true {
            if let file = try directory.file(updatingExisting: FilePath(name)) { return file }
            do {
                return try make(name, in: directory)
            } catch  where error.errno == .fileExists {
                continue
            }
        }
    }

    private static func make(
        _ name: FilePath.Component,
        in directory: Directory
    ) throws(FileError) -> File {
        let folder = try directory.status()
        let mode = permissions(in: folder)
        let file = try directory.file(creating: FilePath(name), permissions: .privateFile)
        // Root may work in directories of other users, who must be able to open the file. An existing file is
        // not changed: it may be a hard link to another file.
        let owner = geteuid() == 0 ? folder.owner : geteuid()
        let isShared = fchown(file.descriptor.rawValue, owner, folder.group) == 0
        if isShared, mode != .privateFile { try file.setMode(mode) }
        return file
    }

    /// Returns permissions that let all users that may write the directory read and write the file.
    private static func permissions(in folder: FileStatus) -> FilePermissions {
        let sticky: UInt32 = 0o1000
        // In a sticky directory, all users may create files, and rename only their own.
        guard folder.mode & sticky == 0 else { return .privateFile }
        var mode = FilePermissions.privateFile
        if folder.mode & 0o020 != 0 { mode.formUnion([.groupRead, .groupWrite]) }
        if folder.mode & 0o002 != 0 { mode.formUnion([.otherRead, .otherWrite]) }
        return mode
    }

    deinit {
        guard lock.tryUpgradeToExclusive() else { return }
        // Removed while locked: a waiting process notices this and creates another.
        lock.removeFile(name, in: directory)
    }
}

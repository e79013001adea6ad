import Glibc
public import SystemPackage

/// A lock by a file that is there for nothing else, beside what it guards.
///
/// A user that may open a file may lock it, for reading too, and keep it locked (fcntl(2), flock(2)). So
/// neither what is guarded nor its directory is locked, which others can read, but a file that those can
/// open who may change names in the directory: they could replace what is guarded anyway. The last holder
/// removes it. One that a killed process left is taken over.
public struct LockFile: ~Copyable, Sendable {
    private let directory: Directory
    private let name: FilePath.Component
    private let inode: UInt64
    private let lock: FileLock

    /// Takes the lock, or returns `nil` if a process holds it in a mode that forbids it.
    ///
    /// - Throws: ``FileError``, with ``FileError/isNotRegularFile`` if something else has the name.
    public static func attempt(
        _ name: FilePath.Component,
        in directory: Directory,
        _ mode: FileLock.Mode
    ) throws(FileError) -> LockFile? {
        while true {
            let file = try open(name, in: directory)
            let inode = try file.status().inode
            guard let lock = try FileLock.attempt(file, mode) else { return nil }
            // The last holder may have removed it between the two.
            guard try directory.status(FilePath(name))?.inode == inode else { continue }
            return LockFile(directory: directory, name: name, inode: inode, lock: lock)
        }
    }

    /// Takes the lock, waiting for others for `patience` at most.
    ///
    /// - Throws: ``FileError`` of which ``FileError/isHeldByOthers`` is true when the time is up.
    public static func wait(
        for name: FilePath.Component,
        in directory: Directory,
        _ mode: FileLock.Mode,
        patience: Duration
    ) async throws(FileError) -> LockFile {
        let deadline = ContinuousClock.now + patience
        while true {
            if let lock = try attempt(name, in: directory, mode) { return lock }
            guard ContinuousClock.now < deadline else {
                throw FileError(lockedByOthers: directory.path.appending(name))
            }
            // Cancelled, it asks once more, and gives up with its caller.
            try? await Task.sleep(for: .milliseconds(10))
        }
    }

    /// Opens the file, making it where it is missing.
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
        // Root works in the directories of others, and must not leave what they cannot open. Nothing is
        // changed about a file that exists: its other name may be one that matters.
        let owner = geteuid() == 0 ? folder.owner : geteuid()
        let isShared = fchown(file.descriptor.rawValue, owner, folder.group) == 0
        if isShared, mode != .privateFile { try file.setMode(mode) }
        return file
    }

    /// Those who may change names in a directory may read and write the file.
    private static func permissions(in folder: FileStatus) -> FilePermissions {
        let sticky: UInt32 = 0o1000
        // There, everybody may make names, and change their own alone.
        guard folder.mode & sticky == 0 else { return .privateFile }
        var mode = FilePermissions.privateFile
        if folder.mode & 0o020 != 0 { mode.formUnion([.groupRead, .groupWrite]) }
        if folder.mode & 0o002 != 0 { mode.formUnion([.otherRead, .otherWrite]) }
        return mode
    }

    deinit {
        guard lock.becomesExclusive() else { return }
        // While it is locked: whoever waits finds it gone, and makes another. One that stays hurts nobody.
        if (try? directory.status(FilePath(name))?.inode) == inode {
            _ = try? directory.remove(name)
        }
    }
}

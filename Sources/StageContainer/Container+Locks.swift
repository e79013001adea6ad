import Glibc
import StageSystem
import SystemPackage

extension Container {
    /// Opens a lock file, making it where it is missing.
    ///
    /// A user that may open a file may lock it, and hold up all others: lock files are their owner's
    /// alone, those too that were made with other permission bits. What has the name of one and is no file
    /// is removed: a copy or a restored backup of a container may have left it.
    func lockFile(
        _ name: FilePath.Component,
        in directory: Directory
    ) throws(FileError) -> File {
        do throws(FileError) {
            return try directory.file(updating: FilePath(name), exactly: .ownerReadWrite)
        } catch {
            guard error.isNotRegularFile, name != Self.repairLock else { throw error }
        }
        // One process at a time: the next one must not remove the file that this one has put there.
        let repair = try waitForLock(Self.repairLock, .exclusive)
        if let status = try directory.status(FilePath(name)), status.kind != .file {
            try directory.removeTree(name)
        }
        let file = try directory.file(updating: FilePath(name), exactly: .ownerReadWrite)
        _ = consume repair
        return file
    }

    /// Takes a lock of the container, and blocks the thread for so many seconds at most where another
    /// process has it.
    ///
    /// - Throws: ``FileError`` of which `isHeldByOthers` is true when the time is up.
    func waitForLock(
        _ name: FilePath.Component,
        _ mode: FileLock.Mode,
        seconds: Int = 5
    ) throws(FileError) -> FileLock {
        for _ in 0..<seconds * 100 {
            let file = try lockFile(name, in: locks)
            if let lock = try FileLock.attempt(file, mode) { return lock }
            usleep(10_000)
        }
        throw FileError(lockedByOthers: locks.path.appending(name))
    }

    /// Held while something that is no lock file is removed.
    private static let repairLock: FilePath.Component = ".repair"
}

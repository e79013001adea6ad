import Glibc
import StageSystem
import SystemPackage

extension Container {
    /// Opens a lock file, making it where it is missing.
    ///
    /// A user that may open a file may lock it, and hold up all others: lock files are their owner's
    /// alone, those too that were made with other permission bits. What has the name of one and is no file
    /// is removed: a copy or a restored backup of a container may have left it. Where the file system has no
    /// room for another file, and this process makes room, the spare one gets the name.
    func lockFile(
        _ name: FilePath.Component,
        in directory: Directory
    ) throws(FileError) -> File {
        do throws(FileError) {
            return try directory.file(updating: FilePath(name), exactly: .ownerReadWrite)
        } catch {
            if error.isOutOfSpace, purpose == .makingRoom, try nameSpare(name, in: directory) {
                return try directory.file(updating: FilePath(name), exactly: .ownerReadWrite)
            }
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
            if let lock = try FileLock.attempt(file, mode: mode) { return lock }
            usleep(10_000)
        }
        throw FileError(lockedByOthers: locks.path.appending(name))
    }

    /// Gives the spare lock file another name, and returns `false` if there is none.
    ///
    /// No process has ever locked it: under its own name it is not opened.
    private func nameSpare(
        _ name: FilePath.Component,
        in directory: Directory
    ) throws(FileError) -> Bool {
        do throws(FileError) {
            try locks.rename(Self.spareLock, to: name, in: directory, replacing: false)
            return true
        } catch {
            // Another process has made the file, or taken the spare.
            if error.errno == .fileExists { return true }
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return false
        }
    }

    /// Makes the spare lock file where it is missing, if there is room for it.
    ///
    /// Of use only where there will be none: that it cannot be made is no failure.
    public func keepSpareLock() {
        _ = try? locks.file(updating: FilePath(Self.spareLock), exactly: .ownerReadWrite)
    }

    /// Becomes the lock file that a process needs which makes room on a file system without room for another
    /// file.
    private static let spareLock: FilePath.Component = ".spare"

    /// Held while something that is no lock file is removed.
    private static let repairLock: FilePath.Component = ".repair"
}

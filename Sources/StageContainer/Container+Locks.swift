import StageSystem
import SystemPackage

extension Container {
    /// Opens a lock file; creates it if it does not exist.
    ///
    /// A user who can open a file can lock it and block all others, so lock files are accessible to their
    /// owner only; the mode of existing files is corrected. Replaces an entry of another kind, which a copy or
    /// a restored backup of a container may have left. If the file system has no space for a new file and this
    /// process is freeing space, the spare lock file is renamed instead.
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
        // Only one process repairs at a time: a second one could remove the file that the first has created.
        let repair = try waitForLock(Self.repairLock, mode: .exclusive)
        if let status = try directory.status(FilePath(name)), status.kind != .file {
            try directory.removeTree(name)
        }
        let file = try directory.file(updating: FilePath(name), exactly: .ownerReadWrite)
        _ = consume repair
        return file
    }

    /// Acquires a lock of the container.
    ///
    /// Blocks the thread for up to `seconds` while another process holds it.
    ///
    /// - Throws: ``FileError`` with `isHeldByOthers` on timeout.
    func waitForLock(
        _ name: FilePath.Component,
        mode: FileLock.Mode,
        seconds: Int = 5
    ) throws(FileError) -> FileLock {
        let lock = try FileLock.block(
            for: name,
            in: locks,
            mode: mode,
            atMost: .seconds(seconds)
        ) { () throws(FileError) in
            try lockFile(name, in: locks)
        }
        guard let lock else { throw FileError(lockedByOthers: locks.path.appending(name)) }
        return lock
    }

    /// Acquires an exclusive lock of the container; suspends the task for `limit` at most while another process or task
    /// holds it.
    ///
    /// - Returns: `nil` if others held the lock until then, or until the task was cancelled.
    func waitForFileLock(
        _ name: FilePath.Component,
        in directory: Directory,
        within limit: Duration
    ) async throws(FileError) -> FileLock? {
        try await FileLock.wait(
            for: name,
            in: directory,
            mode: .exclusive,
            atMost: limit
        ) { () throws(FileError) in
            try lockFile(name, in: directory)
        }
    }

    /// Renames the spare lock file to `name`; returns `false` if there is no spare, or the file system cannot rename it
    /// without replacing a file.
    ///
    /// No process holds a lock on the spare: it is never opened under its own name.
    private func nameSpare(
        _ name: FilePath.Component,
        in directory: Directory
    ) throws(FileError) -> Bool {
        do throws(FileError) {
            try locks.rename(Self.spareLock, to: name, in: directory, replacing: false)
            return true
        } catch {
            // Another process has created the file or used the spare.
            if error.errno == .fileExists { return true }
            // Replacing a lock file of another process would give the lock to both.
            guard error.errno == .noSuchFileOrDirectory || error.isUnsupported else { throw error }
            return false
        }
    }

    /// Creates the spare lock file if it does not exist and there is space for it.
    ///
    /// Errors are ignored: the spare is needed only after the file system has become full.
    public func keepSpareLock() {
        _ = try? locks.file(updating: FilePath(Self.spareLock), exactly: .ownerReadWrite)
    }

    /// A spare file that is renamed when a process that frees space needs a lock file and the file system is
    /// full.
    private static let spareLock: FilePath.Component = ".spare"

    /// Held while an entry that is not a lock file is replaced by one.
    private static let repairLock: FilePath.Component = ".repair"
}

import StageModel
import StageSystem
import Synchronization
public import SystemPackage

/// The right to fetch one archive, or one file, into `downloads/`, until ``end()``.
///
/// Packs that share an archive share its part file, in one process or in several; so do applications
/// of one group. Its lock file is `<name>.lock` and goes with the lock; that of a dead process is
/// taken over by the next, or removed by a sweep.
public final class DownloadLock: Sendable {
    private let downloads: Directory
    private let file: FilePath.Component
    private let lock: Mutex<FileLock?>
    /// The paths of the lock files that this process holds.
    fileprivate static let held = Mutex<Set<FilePath>>([])

    init(_ downloads: Directory, _ file: FilePath.Component, _ lock: consuming FileLock) {
        self.downloads = downloads
        self.file = file
        self.lock = Mutex(lock)
        _ = Self.held.withLock { $0.insert(downloads.path.appending(file)) }
    }

    deinit { forget() }

    private func forget() {
        _ = Self.held.withLock { $0.remove(downloads.path.appending(file)) }
    }

    /// Gives up the right.
    public func end() {
        lock.withLock { lock in
            guard lock != nil else { return }
            forget()
            // While it is locked: whoever waits for the file finds it gone, and makes another.
            // One that cannot be removed is removed by a sweep.
            _ = try? downloads.remove(file)
            lock = nil
        }
    }
}

extension Container {
    /// Takes the lock on what is fetched under a name of `downloads/`, or returns `nil` if another
    /// process or task fetches it.
    public func attemptDownloadLock(
        _ name: FilePath.Component
    ) throws(ContainerError) -> DownloadLock? {
        try ContainerError.wrapping { () throws(FileError) in try attemptLock(ofDownload: name) }
    }

    /// Whether a task of this process fetches what has this name in `downloads/`.
    public func holdsDownloadLock(_ name: FilePath.Component) -> Bool {
        let path = downloads.path.appending("\(name.string).lock")
        return DownloadLock.held.withLock { $0.contains(path) }
    }

    func attemptLock(ofDownload name: FilePath.Component) throws(FileError) -> DownloadLock? {
        guard let lockName = FilePath.Component("\(name.string).lock") else {
            throw FileError("lock", path: downloads.path.appending(name), errno: .invalidArgument)
        }
        while true {
            let file = try lockFile(lockName, in: downloads)
            let inode = try file.status().inode
            guard let lock = try FileLock.attempt(file, mode: .exclusive) else { return nil }
            // The one before may have removed the file between the two.
            guard try downloads.status(FilePath(lockName))?.inode == inode else { continue }
            return DownloadLock(downloads, lockName, lock)
        }
    }
}

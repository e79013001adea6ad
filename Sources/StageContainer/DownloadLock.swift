import StageModel
import StageSystem
import Synchronization
public import SystemPackage

/// The exclusive right to download one object or file into `downloads/`, until ``end()``.
///
/// Packs that share an archive share its partial file, within a process, between processes and between the
/// applications of a group. The lock file is `<name>.lock` and is deleted with the lock. The next process
/// takes over the file of a dead one, or `gc` deletes it.
public final class DownloadLock: Sendable {
    private let downloads: Directory
    private let file: FilePath.Component
    private let lock: Mutex<FileLock?>
    /// The paths of the lock files that this process holds.
    fileprivate static let held = Mutex<Set<FilePath>>([])

    init(in downloads: Directory, file: FilePath.Component, holding lock: consuming FileLock) {
        self.downloads = downloads
        self.file = file
        self.lock = Mutex(lock)
        _ = Self.held.withLock { $0.insert(downloads.path.appending(file)) }
    }

    deinit { forget() }

    private func forget() {
        _ = Self.held.withLock { $0.remove(downloads.path.appending(file)) }
    }

    /// Deletes the lock file and releases the lock.
    ///
    /// Later calls have no effect.
    public func end() {
        lock.withLock { lock in
            guard lock != nil else { return }
            forget()
            // Deleted while locked: a process that has opened the file then finds it gone, and creates a new
            // one. If deletion fails, `gc` deletes it later.
            _ = try? downloads.remove(file)
            lock = nil
        }
    }
}

extension Container {
    /// Acquires the lock for downloading to a name in `downloads/`, or returns `nil` if another process or
    /// task holds it.
    public func attemptDownloadLock(
        _ name: FilePath.Component
    ) throws(ContainerError) -> DownloadLock? {
        try ContainerError.wrapping { () throws(FileError) in try attemptLock(ofDownload: name) }
    }

    /// Acquires the lock for downloading to a name in `downloads/`; suspends the task for `limit` at most while another
    /// process or task holds it.
    ///
    /// - Returns: `nil` if others held the lock until then, or until the task was cancelled.
    package func waitForDownloadLock(
        _ name: FilePath.Component,
        within limit: Duration
    ) async throws(ContainerError) -> DownloadLock? {
        do throws(FileError) {
            let file = try lockName(ofDownload: name)
            let lock = try await waitForFileLock(file, in: downloads, within: limit)
            guard let lock else { return nil }
            return DownloadLock(in: downloads, file: file, holding: lock)
        } catch {
            throw .file(error)
        }
    }

    /// Returns whether a task of this process holds the lock for a name in `downloads/`.
    public func holdsDownloadLock(_ name: FilePath.Component) -> Bool {
        let path = downloads.path.appending("\(name.string).lock")
        return DownloadLock.held.withLock { $0.contains(path) }
    }

    func attemptLock(ofDownload name: FilePath.Component) throws(FileError) -> DownloadLock? {
        let file = try lockName(ofDownload: name)
        let lock = try FileLock.attempt(file, in: downloads, mode: .exclusive) {
            () throws(FileError) in
            try lockFile(file, in: downloads)
        }
        guard let lock else { return nil }
        return DownloadLock(in: downloads, file: file, holding: lock)
    }

    private func lockName(
        ofDownload name: FilePath.Component
    ) throws(FileError) -> FilePath.Component {
        guard let file = FilePath.Component("\(name.string).lock") else {
            throw FileError("lock", path: downloads.path.appending(name), errno: .invalidArgument)
        }
        return file
    }
}

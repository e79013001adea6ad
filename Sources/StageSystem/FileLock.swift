import CLinux
import Glibc
package import SystemPackage

/// A lock on a file, held for the lifetime of the value.
///
/// An open file description lock (`F_OFD_SETLK`, fcntl(2)): it works between threads of one process as well
/// as between processes, and the kernel releases it when its owner dies, so it never becomes stale. The
/// deinitializer unlocks explicitly: after closing the file alone, a child process that another thread has
/// just forked would hold the lock until it executes its program.
///
/// The time in which the machine is suspended does not count towards the limits of waits: the owner of the lock is suspended, too.
@safe package struct FileLock: ~Copyable, Sendable {
    /// Released by `deinit`, because the thread that has waited for the lock may still refer to this object.
    private let lock: RetriedLock

    private init(_ lock: RetriedLock) { self.lock = lock }

    /// The kind of a lock.
    package enum Mode: Sendable {
        /// Other owners may hold shared locks at the same time.
        case shared
        /// No other owner may hold a lock.
        case exclusive
    }

    /// Takes the lock on `file`, or returns `nil` if a conflicting lock is held.
    package static func attempt(_ file: consuming File, mode: Mode) throws(FileError) -> FileLock? {
        let lock = RetriedLock(file, mode: mode)
        guard try lock.attempt() else { return nil }
        return FileLock(lock)
    }

    /// Takes the lock on `file`; blocks the thread for `limit` at most while a conflicting lock is held.
    ///
    /// - Returns: `nil` if others held the lock until then.
    package static func block(
        for file: consuming File,
        mode: Mode,
        atMost limit: Duration
    ) throws(FileError) -> FileLock? {
        guard limit > .zero else { return try attempt(file, mode: mode) }
        let queue = try LockQueue.shared(for: file)
        let lock = RetriedLock(file, mode: mode)
        guard try queue.block(for: lock, within: limit) else { return nil }
        return FileLock(lock)
    }

    /// Takes the lock on `file`; suspends the task for `limit` at most while a conflicting lock is held.
    ///
    /// - Returns: `nil` if others held the lock until then, or until the task was cancelled.
    package static func wait(
        for file: consuming File,
        mode: Mode,
        atMost limit: Duration
    ) async throws(FileError) -> FileLock? {
        let queue = try LockQueue.shared(for: file)
        let lock = RetriedLock(file, mode: mode)
        do {
            guard try await queue.wait(for: lock, within: limit) else { return nil }
        } catch let error as FileError {
            throw error
        } catch {
            // The task was cancelled.
            return nil
        }
        return FileLock(lock)
    }

    /// Takes the lock on a file that its last holder removes, or returns `nil` if a conflicting lock is held.
    ///
    /// `open` opens the file, and creates it if it does not exist.
    package static func attempt(
        _ name: FilePath.Component,
        in directory: Directory,
        mode: Mode,
        opening open: () throws(FileError) -> File
    ) throws(FileError) -> FileLock? {
        try block(for: name, in: directory, mode: mode, atMost: .zero, opening: open)
    }

    /// Takes the lock as ``attempt(_:in:mode:opening:)`` does, but blocks the thread for `limit` at most while a
    /// conflicting lock is held.
    ///
    /// - Returns: `nil` if others held the lock until then.
    package static func block(
        for name: FilePath.Component,
        in directory: Directory,
        mode: Mode,
        atMost limit: Duration,
        opening open: () throws(FileError) -> File
    ) throws(FileError) -> FileLock? {
        let deadline = SuspendingClock.now + limit.sleepable
        while true {
            let file = try open()
            let inode = try file.status().inode
            let remaining = deadline - .now
            guard let lock = try block(for: file, mode: mode, atMost: remaining) else { return nil }
            // The last holder may have removed the file between opening and locking.
            if try directory.status(FilePath(name))?.inode == inode { return lock }
        }
    }

    /// Takes the lock as ``attempt(_:in:mode:opening:)`` does, but suspends the task for `limit` at most while a
    /// conflicting lock is held.
    ///
    /// - Returns: `nil` if others held the lock until then, or until the task was cancelled.
    package static func wait(
        for name: FilePath.Component,
        in directory: Directory,
        mode: Mode,
        atMost limit: Duration,
        opening open: () throws(FileError) -> File
    ) async throws(FileError) -> FileLock? {
        let deadline = SuspendingClock.now + limit.sleepable
        while true {
            let file = try open()
            let inode = try file.status().inode
            let remaining = deadline - .now
            guard let lock = try await wait(for: file, mode: mode, atMost: remaining) else {
                return nil
            }
            if try directory.status(FilePath(name))?.inode == inode { return lock }
        }
    }

    /// Removes the locked file, unless `name` is another file by now.
    borrowing func removeFile(_ name: FilePath.Component, in directory: Directory) {
        // A file that stays does no harm.
        guard let inode = try? lock.file.status().inode,
            (try? directory.status(FilePath(name))?.inode) == inode
        else { return }
        _ = try? directory.remove(name)
    }

    deinit { lock.release() }

    /// Converts a shared lock to an exclusive one, and returns whether this succeeded.
    borrowing func tryUpgradeToExclusive() -> Bool {
        // An error means that the lock may be held elsewhere.
        (try? lock.take(.exclusive)) != nil
    }

    /// Reads from the file, so that its access time records the use.
    package borrowing func touch() {
        var byte: UInt8 = 0
        // An error is ignored: the lock holds even if the file cannot be read.
        _ = unsafe pread(lock.file.descriptor.rawValue, &byte, 1, 0)
    }

    /// Returns whether a process holds a lock on the file, shared or exclusive, at this moment.
    ///
    /// Takes no lock itself, so the query never makes another process fail to lock.
    package static func isHeld(on file: borrowing File) throws(FileError) -> Bool {
        let descriptor = file.descriptor.rawValue
        return try Directory.attempt("lock", at: file.path) {
            stage_ofd_is_locked(descriptor, Int16(F_WRLCK))
        } > 0
    }

    /// Returns whether a process holds an exclusive lock on the file at this moment.
    ///
    /// Takes no lock itself. Exclusive locks need write permission for the file, so users that can only read
    /// it do not influence the result.
    package static func isHeldExclusively(on file: borrowing File) throws(FileError) -> Bool {
        let descriptor = file.descriptor.rawValue
        return try Directory.attempt("lock", at: file.path) {
            stage_ofd_is_locked(descriptor, Int16(F_RDLCK))
        } > 0
    }
}

/// A lock on an open file, of the same kind as ``FileLock``, that a caller can attempt to take repeatedly.
///
/// Held from the first successful attempt until ``release()`` or the end of the object.
package final class RetriedLock: Sendable {
    fileprivate let file: File
    private let mode: FileLock.Mode

    /// Creates the value before the first attempt.
    package init(_ file: consuming File, mode: FileLock.Mode = .exclusive) {
        self.file = file
        self.mode = mode
    }

    deinit { release() }

    /// Takes the lock, or returns `false` if another owner holds a conflicting one.
    package func attempt() throws(FileError) -> Bool {
        do throws(FileError) {
            try take(mode)
            return true
        } catch {
            guard error.errno == .resourceTemporarilyUnavailable || error.errno == .permissionDenied
            else { throw error }
            return false
        }
    }

    /// Takes a lock of this mode, or fails if another owner holds a conflicting one.
    fileprivate func take(_ mode: FileLock.Mode) throws(FileError) {
        let descriptor = file.descriptor.rawValue
        let path = file.path
        try Directory.attempt("lock", at: path) { stage_ofd_lock(descriptor, mode.kind) }
    }

    /// Takes the lock; blocks the thread while another owner holds a conflicting one.
    func wait() throws(FileError) {
        let descriptor = file.descriptor.rawValue
        let path = file.path
        try Directory.attempt("lock", at: path) { stage_ofd_wait(descriptor, mode.kind) }
    }

    /// Releases the lock, if it is held.
    package func release() {
        // Unlocking cannot fail on an open file, and closing a file releases its lock.
        _ = stage_ofd_lock(file.descriptor.rawValue, Int16(F_UNLCK))
    }
}

extension FileLock.Mode {
    /// The type of the lock for fcntl(2).
    fileprivate var kind: Int16 { Int16(self == .shared ? F_RDLCK : F_WRLCK) }
}

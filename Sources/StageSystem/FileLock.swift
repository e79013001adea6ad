import CLinux
import Glibc
package import SystemPackage

/// A lock on a file, held for the lifetime of the value.
///
/// An open file description lock (`F_OFD_SETLK`, fcntl(2)): it works between threads of one process as well
/// as between processes, and the kernel releases it when its owner dies, so it never becomes stale. The
/// deinitializer unlocks explicitly: after closing the file alone, a child process that another thread has
/// just forked would hold the lock until it executes its program.
@safe package struct FileLock: ~Copyable, Sendable {
    private let file: File

    /// The kind of a lock.
    package enum Mode: Sendable {
        /// Other owners may hold shared locks at the same time.
        case shared
        /// No other owner may hold a lock.
        case exclusive
    }

    /// Takes the lock on `file`, or returns `nil` if a conflicting lock is held.
    package static func attempt(_ file: consuming File, mode: Mode) throws(FileError) -> FileLock? {
        guard try tryToTake(file, mode: mode) else { return nil }
        return FileLock(file: file)
    }

    /// Takes the lock on `file`, or returns `false` if a conflicting lock is held.
    fileprivate static func tryToTake(
        _ file: borrowing File,
        mode: Mode
    ) throws(FileError) -> Bool {
        do {
            try take(file, mode: mode)
            return true
        } catch
            where error.errno == .resourceTemporarilyUnavailable
            || error.errno == .permissionDenied
        {
            return false
        }
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
        while true {
            let file = try open()
            let inode = try file.status().inode
            guard let lock = try attempt(file, mode: mode) else { return nil }
            // The last holder may have removed the file between opening and locking.
            if try directory.status(FilePath(name))?.inode == inode { return lock }
        }
    }

    /// Removes the locked file, unless `name` is another file by now.
    borrowing func removeFile(_ name: FilePath.Component, in directory: Directory) {
        // A file that stays does no harm.
        guard let inode = try? file.status().inode,
            (try? directory.status(FilePath(name))?.inode) == inode
        else { return }
        _ = try? directory.remove(name)
    }

    deinit { Self.release(file) }

    fileprivate static func release(_ file: borrowing File) {
        // Unlocking cannot fail on an open file, and closing a file releases its lock.
        _ = stage_ofd_lock(file.descriptor.rawValue, Int16(F_UNLCK))
    }

    /// Converts a shared lock to an exclusive one, and returns whether this succeeded.
    borrowing func tryUpgradeToExclusive() -> Bool {
        // An error means that the lock may be held elsewhere.
        (try? Self.take(file, mode: .exclusive)) != nil
    }

    /// Reads from the file, so that its access time records the use.
    package borrowing func touch() {
        var byte: UInt8 = 0
        // An error is ignored: the lock holds even if the file cannot be read.
        _ = unsafe pread(file.descriptor.rawValue, &byte, 1, 0)
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

    private static func take(_ file: borrowing File, mode: Mode) throws(FileError) {
        let kind = Int16(mode == .shared ? F_RDLCK : F_WRLCK)
        let descriptor = file.descriptor.rawValue
        let path = file.path
        try Directory.attempt("lock", at: path) { stage_ofd_lock(descriptor, kind) }
    }
}

/// An exclusive lock on a file that is opened once and locked by any of several attempts, like a ``FileLock``.
///
/// Held from the first successful attempt until ``release()``, or until the value ends.
package final class RetriedLock: Sendable {
    private let file: File

    /// Creates the value before the first attempt.
    package init(_ file: consuming File) { self.file = file }

    deinit { FileLock.release(file) }

    /// Takes the lock, or returns `false` if another owner holds a lock on the file.
    package func attempt() throws(FileError) -> Bool {
        try FileLock.tryToTake(file, mode: .exclusive)
    }

    /// Takes the lock; blocks the thread while another owner holds one on the file.
    func wait() throws(FileError) {
        let descriptor = file.descriptor.rawValue
        let path = file.path
        _ = try Directory.attempt("lock", at: path) { stage_ofd_wait(descriptor, Int16(F_WRLCK)) }
    }

    /// Releases the lock, if it is held.
    package func release() { FileLock.release(file) }
}

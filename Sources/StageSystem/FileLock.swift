import CLinux
import Glibc
import SystemPackage

/// A lock on a file, held while the value lives.
///
/// Locks of open file descriptions (`F_OFD_SETLK`, fcntl(2)): they work between threads of one process
/// as between processes, and the kernel frees them when their owner dies, so none is ever stale. The end of
/// the value gives the lock up at once: closing the file alone would leave it to a process that another
/// thread has forked and that has not executed its program yet.
@safe public struct FileLock: ~Copyable, Sendable {
    private let file: File

    /// Who else may hold a lock of the same file.
    public enum Mode: Sendable {
        /// Others may hold it shared too.
        case shared
        /// Nobody else may hold it.
        case exclusive
    }

    /// Takes the lock on `file`, or returns `nil` if somebody holds it in a mode that forbids it.
    public static func attempt(_ file: consuming File, _ mode: Mode) throws(FileError) -> FileLock?
    {
        do {
            try take(file, mode)
        } catch
            where error.errno == .resourceTemporarilyUnavailable
            || error.errno == .permissionDenied
        {
            return nil
        }
        return FileLock(file: file)
    }

    deinit {
        // It cannot fail on an open file, and a file that is closed has no lock.
        _ = stage_ofd_lock(file.descriptor.rawValue, Int16(F_UNLCK))
    }

    /// Makes a shared lock an exclusive one, and returns whether nobody else holds it.
    borrowing func becomesExclusive() -> Bool {
        // What the system refuses is somebody else's, too.
        (try? Self.take(file, .exclusive)) != nil
    }

    /// Reads from the file, so that its time of access tells that it was in use.
    public borrowing func touch() {
        var byte: UInt8 = 0
        // A file that cannot be read is locked all the same.
        _ = unsafe pread(file.descriptor.rawValue, &byte, 1, 0)
    }

    /// Whether somebody holds a lock on the file, shared or exclusive, at this moment.
    ///
    /// Takes none itself, so that nobody is ever refused because of the question.
    public static func isHeld(on file: borrowing File) throws(FileError) -> Bool {
        let descriptor = file.descriptor.rawValue
        return try Directory.attempt("lock", file.path) {
            stage_ofd_is_locked(descriptor, Int16(F_WRLCK))
        } > 0
    }

    /// Whether a process holds the lock on the file exclusively at this moment.
    ///
    /// Takes no lock itself. Only a process that may write the file can hold it so: the answer does not
    /// depend on users that may only read it.
    public static func isHeldExclusively(on file: borrowing File) throws(FileError) -> Bool {
        let descriptor = file.descriptor.rawValue
        return try Directory.attempt("lock", file.path) {
            stage_ofd_is_locked(descriptor, Int16(F_RDLCK))
        } > 0
    }

    private static func take(_ file: borrowing File, _ mode: Mode) throws(FileError) {
        let kind = Int16(mode == .shared ? F_RDLCK : F_WRLCK)
        let descriptor = file.descriptor.rawValue
        let path = file.path
        try Directory.attempt("lock", path) { stage_ofd_lock(descriptor, kind) }
    }
}

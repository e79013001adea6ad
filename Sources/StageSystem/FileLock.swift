import CLinux
import Glibc
import SystemPackage

/// A lock on a file, held while the value lives.
///
/// Locks of open file descriptions (`F_OFD_SETLK`, fcntl(2)): they work between threads of one process
/// as between processes, and the kernel frees them when their owner dies, so none is ever stale.
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
            try take(file, mode, wait: false)
        } catch
            where error.errno == .resourceTemporarilyUnavailable
            || error.errno == .permissionDenied
        {
            return nil
        }
        return FileLock(file: file)
    }

    /// Takes the lock on `file`, and blocks the thread until it can.
    public static func wait(for file: consuming File, _ mode: Mode) throws(FileError) -> FileLock {
        try take(file, mode, wait: true)
        return FileLock(file: file)
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
        return try Directory.attempt("lock", file.path) { stage_ofd_is_locked(descriptor) } > 0
    }

    private static func take(
        _ file: borrowing File,
        _ mode: Mode,
        wait: Bool
    ) throws(FileError) {
        let kind = Int16(mode == .shared ? F_RDLCK : F_WRLCK)
        let descriptor = file.descriptor.rawValue
        let path = file.path
        try Directory.attempt("lock", path) { stage_ofd_lock(descriptor, kind, wait ? 1 : 0) }
    }
}

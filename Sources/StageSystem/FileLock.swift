import CLinux
import Glibc
public import SystemPackage

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

    /// Takes the right to put another file in the place of `name`, which exists, or returns `nil` if
    /// somebody has it.
    ///
    /// For files that nobody writes into, so that no lock has to lie beside them. The lock is on the
    /// file itself, of the kind of flock(2), which does not ask for the right to write: the directory's
    /// is enough to replace one. (On NFS the file's is needed, too.) It is over with the replacement:
    /// the next one is on the new file. Locks of ``attempt(_:_:)`` do not count here, nor these there.
    public static func attempt(
        replacing name: FilePath.Component,
        in directory: Directory
    ) throws(FileError) -> FileLock? {
        while true {
            let file = try openForLocking(FilePath(name), in: directory)
            do {
                let descriptor = file.descriptor.rawValue
                try Directory.attempt("lock", file.path) {
                    stage_flock(descriptor, LOCK_EX | LOCK_NB)
                }
            } catch  where error.errno == .resourceTemporarilyUnavailable {
                return nil
            }
            // The one before may have replaced the file between the two.
            let found = try directory.status(FilePath(name))?.inode
            if try file.status().inode == found { return FileLock(file: file) }
        }
    }

    /// Takes a lock on a directory, or returns `nil` if somebody holds one that forbids it.
    ///
    /// Of the kind of flock(2), which needs no file beside what is in the directory; some file systems
    /// of networks have none for directories.
    public static func attempt(
        directory: Directory,
        _ mode: Mode
    ) throws(FileError) -> FileLock? {
        do throws(FileError) {
            return try lock(directory, mode, LOCK_NB)
        } catch {
            guard error.errno == .resourceTemporarilyUnavailable else { throw error }
            return nil
        }
    }

    /// Takes a lock on a directory, and blocks the thread until it can.
    public static func wait(
        forDirectory directory: Directory,
        _ mode: Mode
    ) throws(FileError) -> FileLock {
        try lock(directory, mode, 0)
    }

    private static func lock(
        _ directory: Directory,
        _ mode: Mode,
        _ flags: Int32
    ) throws(FileError) -> FileLock {
        let descriptor = try directory.openFile(".", O_RDONLY | O_DIRECTORY, 0)
        let lock = FileLock(file: File(adopting: descriptor, path: directory.path))
        let operation = (mode == .shared ? LOCK_SH : LOCK_EX) | flags
        try Directory.attempt("lock", directory.path) {
            stage_flock(descriptor.rawValue, operation)
        }
        return lock
    }

    private static func openForLocking(
        _ name: FilePath,
        in directory: Directory
    ) throws(FileError) -> File {
        do {
            return try directory.openRegularFile(name, O_RDWR)
        } catch  where error.errno == .permissionDenied || error.errno == .readOnlyFileSystem {
            return try directory.openRegularFile(name, O_RDONLY)
        }
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

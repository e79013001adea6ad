import GRDB
import StageControl
import StageSystem
import SystemPackage

extension DaemonError {
    /// Converts an error of the journal; a full disk becomes a ``FileError``.
    init(journal path: FilePath, _ error: any Error) {
        switch error {
        case let error as DaemonError: self = error
        case let error as ControlRefusal: self = .refused(error)
        case let error as FileError: self = .file(error)
        case let error as DatabaseError where error.isOfFullDisk(path):
            self = .file(FileError("write", path: path, errno: .noSpace))
        default: self = .journal(path, "\(error)")
        }
    }
}

extension DatabaseError {
    /// Set if the database file is damaged, rather than inaccessible.
    var isDamage: Bool {
        [.SQLITE_CORRUPT, .SQLITE_NOTADB].contains(resultCode)
    }

    /// Returns whether SQLite failed because the disk of the journal is full.
    fileprivate func isOfFullDisk(_ path: FilePath) -> Bool {
        if resultCode == .SQLITE_FULL { return true }
        // SQLite reports no cause if it cannot create or extend a file beside the journal.
        guard [.SQLITE_IOERR, .SQLITE_CANTOPEN].contains(resultCode),
            // If the free space is unknown, the disk does not count as full.
            let free = try? Directory.open(path.removingLastComponent()).freeSpace()
        else { return false }
        return free.bytes < Self.sharedMemorySize || free.files == 0
    }

    /// Bytes by which the index of the write-ahead log grows.
    private static let sharedMemorySize: Int64 = 64 << 10
}

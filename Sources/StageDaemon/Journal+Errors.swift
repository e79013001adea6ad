import GRDB
import StageControl
import StageSystem
import SystemPackage

extension DaemonError {
    /// The reason why a journal cannot be read or written: where the disk is full, that.
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

    /// Whether a full disk is the reason: it may pass.
    public var isOutOfSpace: Bool {
        if case .file(let error) = self { error.isOutOfSpace } else { false }
    }
}

extension DatabaseError {
    /// Whether the file is damaged, and not merely out of reach.
    var isDamage: Bool {
        [.SQLITE_CORRUPT, .SQLITE_NOTADB].contains(resultCode)
    }

    /// Whether the disk that the journal is on has no room for what SQLite was about to write.
    fileprivate func isOfFullDisk(_ path: FilePath) -> Bool {
        if resultCode == .SQLITE_FULL { return true }
        // SQLite does not say why it could not make a file beside the journal, or make it longer.
        guard [.SQLITE_IOERR, .SQLITE_CANTOPEN].contains(resultCode),
            // What cannot be told is not known to be full.
            let free = try? Directory.open(path.removingLastComponent()).freeSpace()
        else { return false }
        return free.bytes < Self.sharedMemorySize || free.files == 0
    }

    /// The bytes that the index of the log grows by.
    private static let sharedMemorySize: Int64 = 64 << 10
}

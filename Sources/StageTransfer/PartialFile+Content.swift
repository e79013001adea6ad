import StageSystem
import Synchronization

extension PartialFile {
    /// The open file of one generation, with the error of a sync that failed.
    ///
    /// Linux reports a failed write to each open file once, and drops what it could not write: neither another descriptor
    /// nor a second call proves that the bytes are on disk.
    final class Content: Sendable {
        let file: File
        private let failure = Mutex<FileError?>(nil)
        /// Locked during a sync, so that its failure is known before the next one begins.
        private let synchronizing = Mutex(())

        init(_ file: consuming File) { self.file = file }

        /// Error of a sync that failed: bytes that no sync before it has confirmed may be lost.
        var fault: FileError? { failure.withLock { $0 } }

        /// Syncs all bytes written so far, unless an earlier sync has failed.
        ///
        /// Pass `isWritten` if a sync of the file system has written them, so that only the result is unknown.
        func synchronize(isWritten: Bool = false) throws(FileError) {
            try synchronizing.withLock { _ throws(FileError) in
                if let fault { throw fault }
                do throws(FileError) {
                    if isWritten { try file.checkWritten() } else { try file.synchronize() }
                } catch {
                    failure.withLock { $0 = error }
                    throw error
                }
            }
        }

        /// Shortens the file to bytes that a sync has confirmed; the next sync counts again.
        func discardBytes(beyond confirmed: Int64) throws(FileError) {
            try file.truncate(to: confirmed)
            failure.withLock { $0 = nil }
        }
    }
}

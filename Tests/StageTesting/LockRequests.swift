package import StageSystem
import SystemPackage

extension FileStatus {
    /// Returns whether a request for the lock on the file waits in the kernel (proc_locks(5)).
    package func hasWaitingLockRequest() throws -> Bool {
        let bytes = try File.open(reading: "/proc/locks").readAll(limit: 1 << 20)
        return String(decoding: bytes, as: UTF8.self).split(separator: "\n").contains { line in
            line.contains(" -> ") && line.contains(":\(inode) ")
        }
    }
}

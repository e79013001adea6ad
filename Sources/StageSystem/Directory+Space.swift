import Glibc
import SystemPackage

extension Directory {
    /// Returns how much of the file system this process may still fill.
    public func freeSpace() throws(FileError) -> FreeSpace {
        let status = try fileSystem()
        return status.space(blocks: status.f_bavail, files: status.f_favail)
    }

    /// Returns how many bytes and files the file system has in all, used and free.
    public func totalSpace() throws(FileError) -> FreeSpace {
        let status = try fileSystem()
        return status.space(blocks: status.f_blocks, files: status.f_files)
    }

    private func fileSystem() throws(FileError) -> statvfs {
        var status = statvfs()
        _ = try Self.attempt("look at", path) { unsafe fstatvfs(descriptor.rawValue, &status) }
        return status
    }
}

extension statvfs {
    /// Returns numbers of blocks and files of this file system as space.
    fileprivate func space(blocks: fsblkcnt_t, files: fsfilcnt_t) -> FreeSpace {
        let (bytes, overflows) = UInt64(blocks).multipliedReportingOverflow(by: UInt64(f_frsize))
        return FreeSpace(
            bytes: overflows ? .max : Int64(clamping: bytes),
            files: f_files == 0 ? nil : Int64(clamping: files)
        )
    }
}

/// The free space of a file system, for this process.
public struct FreeSpace: Equatable, Sendable {
    /// Bytes that may still be written.
    public var bytes: Int64
    /// Files that may still be created; `nil` where the file system sets no number.
    public var files: Int64?
}

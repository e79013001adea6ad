import CLinux
import Glibc
import SystemPackage

extension Directory {
    /// Returns the space of the file system that this process may still use.
    public func freeSpace() throws(FileError) -> FreeSpace {
        let status = try fileSystem()
        return status.space(blocks: status.f_bavail, files: status.f_favail)
    }

    /// Returns the total bytes and files of the file system, used and free.
    public func totalSpace() throws(FileError) -> FreeSpace {
        let status = try fileSystem()
        return status.space(blocks: status.f_blocks, files: status.f_files)
    }

    /// `true` if a hard link to a file takes no space for the file's content, as on most file systems; `false` also if the
    /// file system is unknown.
    package var linksTakeNoSpace: Bool { stage_may_copy_for_links(descriptor.rawValue) == 0 }

    private func fileSystem() throws(FileError) -> statvfs {
        var status = statvfs()
        _ = try Self.attempt("inspect", at: path) { unsafe fstatvfs(descriptor.rawValue, &status) }
        return status
    }
}

extension statvfs {
    /// Converts numbers of blocks and files of this file system to bytes and files.
    fileprivate func space(blocks: fsblkcnt_t, files: fsfilcnt_t) -> FreeSpace {
        let (bytes, overflows) = UInt64(blocks).multipliedReportingOverflow(by: UInt64(f_frsize))
        return FreeSpace(
            bytes: overflows ? .max : Int64(clamping: bytes),
            files: f_files == 0 ? nil : Int64(clamping: files)
        )
    }
}

/// Free or total space of a file system.
public struct FreeSpace: Equatable, Sendable {
    /// Bytes available.
    public var bytes: Int64
    /// Files that can be created; `nil` if the file system has no limit.
    public var files: Int64?
}

import CLinux
import Glibc
package import SystemPackage

extension Directory {
    /// Returns the space of the file system that this process may still use.
    public func freeSpace() throws(FileError) -> FreeSpace {
        let status = try fileSystem()
        return FreeSpace(blocks: status.f_bavail, files: status.f_favail, of: status)
    }

    /// Returns the total bytes and files of the file system, used and free.
    public func totalSpace() throws(FileError) -> FreeSpace {
        let status = try fileSystem()
        return FreeSpace(blocks: status.f_blocks, files: status.f_files, of: status)
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

extension FreeSpace {
    /// Converts numbers of blocks and files of a file system to bytes and files.
    init(blocks: fsblkcnt_t, files: fsfilcnt_t, of status: statvfs) {
        let (bytes, overflows) = UInt64(blocks)
            .multipliedReportingOverflow(by: UInt64(status.f_frsize))
        self.init(
            bytes: overflows ? .max : Int64(clamping: bytes),
            files: status.hasLimitOfFiles ? Int64(clamping: files) : nil
        )
    }
}

extension statvfs {
    /// `false` if the file system reports no files, as Btrfs, or more free ones than it has, or a number that no disk can hold:
    /// CephFS reports 2^64 - 1 free files, and the 9P of WSL a million of 999.
    fileprivate var hasLimitOfFiles: Bool {
        f_files != 0 && f_favail <= f_files && f_favail < 1 << 62
    }
}

/// Free or total space of a file system.
public struct FreeSpace: Equatable, Sendable {
    /// Bytes available.
    public var bytes: Int64
    /// Files that can be created; `nil` if the file system has no limit.
    public var files: Int64?

    /// `true` if inodes are missing, and no bytes: hardly a file can be created.
    ///
    /// A failure may have removed some files before it is reported.
    fileprivate var lacksFilesAlone: Bool {
        guard let files else { return false }
        return files < 64 && bytes >= 1 << 20
    }
}

extension FilePath {
    /// `true` if the file system of the path, or of its nearest directory that exists, lacks inodes and no bytes; `false` if its
    /// free space cannot be read.
    package var lacksInodes: Bool {
        var candidate = absolute
        repeat {
            if let directory = try? Directory.open(candidate) {
                return (try? directory.freeSpace())?.lacksFilesAlone ?? false
            }
        } while candidate.removeLastComponent()
        return false
    }
}

extension FileError {
    /// The advice for a file system without free inodes.
    package static let inodeAdvice =
        "delete files ('df -i' counts them) or use a file system with more inodes"

    /// The advice for an error that ``isOutOfSpace``, by what the file system lacks now.
    package var spaceAdvice: String {
        errno == .noSpace && path.lacksInodes ? Self.inodeAdvice : "free some space"
    }
}

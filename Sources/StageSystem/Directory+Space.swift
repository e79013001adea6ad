import Glibc
import SystemPackage

extension Directory {
    /// Returns how much of the file system this process may still fill.
    public func freeSpace() throws(FileError) -> FreeSpace {
        var status = statvfs()
        _ = try Self.attempt("look at", path) { unsafe fstatvfs(descriptor.rawValue, &status) }
        let (bytes, overflows) = UInt64(status.f_bavail)
            .multipliedReportingOverflow(by: UInt64(status.f_frsize))
        return FreeSpace(
            bytes: overflows ? .max : Int64(clamping: bytes),
            files: status.f_files == 0 ? nil : Int64(clamping: status.f_favail)
        )
    }

    /// Returns how many bytes and files the file system has in all, used and free.
    public func totalSpace() throws(FileError) -> FreeSpace {
        var status = statvfs()
        _ = try Self.attempt("look at", path) { unsafe fstatvfs(descriptor.rawValue, &status) }
        let files = status.f_files == 0 ? nil : Int64(clamping: status.f_files)
        return FreeSpace(bytes: try fileSystemSize(), files: files)
    }

    /// Returns how many bytes the file system has in all, used and free.
    public func fileSystemSize() throws(FileError) -> Int64 {
        var status = statvfs()
        _ = try Self.attempt("look at", path) { unsafe fstatvfs(descriptor.rawValue, &status) }
        let (bytes, overflows) = UInt64(status.f_blocks)
            .multipliedReportingOverflow(by: UInt64(status.f_frsize))
        return overflows ? .max : Int64(clamping: bytes)
    }
}

/// The free space of a file system, for this process.
public struct FreeSpace: Equatable, Sendable {
    /// Bytes that may still be written.
    public var bytes: Int64
    /// Files that may still be created; `nil` where the file system sets no number.
    public var files: Int64?
}

import CLinux
import Glibc
public import SystemPackage

/// An open file with one owner, closed when the owner releases it.
@safe public struct File: ~Copyable, Sendable {
    /// The descriptor of the file, owned by this value.
    public let descriptor: FileDescriptor
    /// The path that the file was opened with, or that of the directory in which it was opened.
    private let start: FilePath
    /// The file's path below `start`.
    private let name: FilePath?

    /// Takes ownership of an open file.
    public init(adopting descriptor: FileDescriptor, path: FilePath) {
        self.descriptor = descriptor
        start = path
        name = nil
    }

    /// Takes ownership of a file that was opened below a directory.
    init(adopting descriptor: FileDescriptor, _ name: FilePath, in directory: Directory) {
        self.descriptor = descriptor
        start = directory.path
        self.name = name
    }

    /// The path that the file was opened with, for messages; that of the final name for a temporary file.
    ///
    /// Composed by each call: swift-system can take longer for that than the kernel for opening the file.
    public var path: FilePath { name.map { start.pushing($0) } ?? start }

    deinit {
        // An error of close(2) is ignored: data that must be durable was synced before.
        try? descriptor.close()
    }

    /// Opens the file at `path` for reading, following symbolic links.
    public static func open(reading path: FilePath) throws(FileError) -> File {
        let file = try Directory.attempt("open", at: path) {
            unsafe path.withPlatformString { unsafe stage_open_file($0) }
        }
        return File(adopting: FileDescriptor(rawValue: file), path: path)
    }

    /// Opens the regular file at `path` for reading, following symbolic links; throws for other file types.
    public static func open(readingRegular path: FilePath) throws(FileError) -> File {
        let descriptor = try Directory.attempt("open", at: path) {
            unsafe path.withPlatformString { unsafe stage_open_regular_file($0) }
        }
        let file = File(adopting: FileDescriptor(rawValue: descriptor), path: path)
        guard try file.status().kind == .file else { throw FileError(notRegular: path) }
        return file
    }

    /// Reads up to `buffer.count` bytes at `offset`, and returns their number: 0 at the end of the file.
    public func read(
        into buffer: inout [UInt8],
        at offset: Int64
    ) throws(FileError) -> Int {
        try read(into: &buffer, from: 0, at: offset)
    }

    /// Reads the first bytes of the file: `count`, or all that it has.
    package func head(_ count: Int) throws(FileError) -> [UInt8] { try read(count: count, at: 0) }

    /// Reads `count` bytes at `offset`, or all up to the end of the file.
    package func read(count: Int, at offset: Int64) throws(FileError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        var done = 0
        while done < count {
            let more = try read(into: &bytes, from: done, at: offset + Int64(done))
            guard more > 0 else { break }
            done += more
        }
        bytes.removeLast(count - done)
        return bytes
    }

    /// Reads the whole file, or a pipe, a socket or a device up to its end.
    ///
    /// - Throws: ``FileError`` with `EFBIG` if it has more than `limit` bytes.
    public func readAll(limit: Int) throws(FileError) -> [UInt8] {
        let found = try status()
        let (size, isStream) = (found.size, found.kind == .other)
        guard size <= limit else { throw FileError("read", path: path, errno: .fileTooLarge) }
        var content: [UInt8] = []
        // A file system may report any size, and have less content (proc(5), fuse(4)).
        content.reserveCapacity(Int(min(size, 16 << 20)))
        var buffer = [UInt8](repeating: 0, count: max(4096, Int(min(size, (1 << 20) - 1)) + 1))
        while true {
            let count =
                try isStream
                ? readNext(into: &buffer) : read(into: &buffer, at: Int64(content.count))
            if count == 0 { return content }
            content += buffer[..<count]
            guard content.count <= limit else {
                throw FileError("read", path: path, errno: .fileTooLarge)
            }
        }
    }

    /// Writes all of `bytes` at `offset`.
    public func write(_ bytes: Span<UInt8>, at offset: Int64) throws(FileError) {
        var written = 0
        while written < bytes.count {
            written += try unsafe bytes.withUnsafeBytes { (buffer) throws(FileError) -> Int in
                let rest = unsafe UnsafeRawBufferPointer(rebasing: buffer[written...])
                return try attempt("write") {
                    unsafe pwrite(
                        descriptor.rawValue,
                        rest.baseAddress,
                        rest.count,
                        off_t(offset) + off_t(written)
                    )
                }
            }
        }
    }

    /// Shortens the file, or extends it with zeros, to `size` bytes.
    public func truncate(to size: Int64) throws(FileError) {
        _ = try attempt("truncate") { Int(ftruncate(descriptor.rawValue, off_t(size))) }
    }

    /// Sets the modification and access times, in seconds since 1970.
    public func setModified(_ seconds: Int64) throws(FileError) {
        let time = timespec(tv_sec: Int(seconds), tv_nsec: 0)
        _ = try attempt("set the time of") {
            unsafe Int(futimens(descriptor.rawValue, [time, time]))
        }
    }

    /// Waits until the content of the file is on disk (fdatasync(2)).
    public func synchronize() throws(FileError) {
        _ = try attempt("synchronize") { Int(fdatasync(descriptor.rawValue)) }
    }

    /// Waits for writes that have begun, and throws the error of one that has failed and was not reported to this file
    /// (sync_file_range(2)).
    ///
    /// Does not flush the disk's cache: the caller has synced the file system before. Syncs the file where the kernel lacks
    /// or refuses the call.
    package func checkWritten() throws(FileError) {
        do throws(FileError) {
            _ = try attempt("synchronize") { Int(stage_wait_for_writeback(descriptor.rawValue)) }
        } catch {
            guard error.isUnsupported || error.errno == .notPermitted else { throw error }
            try synchronize()
        }
    }

    /// Starts writing the content of the file to disk, without waiting.
    ///
    /// A hint to the kernel: it guarantees nothing, and ``synchronize()`` reports errors.
    public func startWriting() { _ = stage_start_writeback(descriptor.rawValue) }

    /// Sets the permission bits, ignoring the umask.
    public func setMode(_ mode: FilePermissions) throws(FileError) {
        _ = try attempt("change") { Int(fchmod(descriptor.rawValue, mode.rawValue)) }
    }

    /// Sets the permission bits, ignoring the umask, unless the file has them already or belongs to another
    /// user.
    public func ensureMode(_ mode: FilePermissions) throws(FileError) {
        if try status().canChangeMode(to: mode) { try setMode(mode) }
    }

    /// Removes the file's content from the page cache, so that the next read comes from the disk.
    ///
    /// A hint to the kernel: pages that are not on disk yet stay, so sync the file system first.
    public func dropCache() { _ = posix_fadvise(descriptor.rawValue, 0, 0, POSIX_FADV_DONTNEED) }

    /// Sets the access time, in seconds since 1970.
    public func setAccessTime(_ seconds: Int64) throws(FileError) {
        _ = try attempt("set the time of") {
            Int(stage_set_access_time(descriptor.rawValue, time_t(seconds)))
        }
    }

    /// Returns the file's type, size, owner and times.
    public func status() throws(FileError) -> FileStatus {
        var status = stat()
        _ = try attempt("inspect") { unsafe Int(fstat(descriptor.rawValue, &status)) }
        return FileStatus(status)
    }

    /// Reads with one call into the bytes of `buffer` from the position `start`.
    private func read(
        into buffer: inout [UInt8],
        from start: Int,
        at offset: Int64
    ) throws(FileError) -> Int {
        try attempt("read") {
            unsafe buffer.withUnsafeMutableBytes {
                let rest = unsafe UnsafeMutableRawBufferPointer(rebasing: $0[start...])
                return unsafe pread(
                    descriptor.rawValue,
                    rest.baseAddress,
                    rest.count,
                    off_t(offset)
                )
            }
        }
    }

    /// Reads the next bytes of a pipe, a socket or a device with one call.
    private func readNext(into buffer: inout [UInt8]) throws(FileError) -> Int {
        try attempt("read") {
            unsafe buffer.withUnsafeMutableBytes {
                unsafe Glibc.read(descriptor.rawValue, $0.baseAddress, $0.count)
            }
        }
    }

    private func attempt(_ operation: String, call: () -> Int) throws(FileError) -> Int {
        while true {
            let result = call()
            if result >= 0 { return result }
            let reason = Errno(rawValue: errno)
            if reason != .interrupted { throw FileError(operation, path: path, errno: reason) }
        }
    }
}

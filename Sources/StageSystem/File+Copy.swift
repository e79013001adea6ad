import CLinux
import Glibc
import SystemPackage

extension File {
    /// Copies the content of another file into this one, which is empty; shares blocks where the file system
    /// can, and keeps holes.
    ///
    /// Does not copy bytes that are appended to the other file meanwhile. May move the file position of
    /// `source`. On one file system with reflinks (btrfs, xfs), the cost does not depend on the size.
    ///
    /// - Parameters:
    ///   - source: The file to copy.
    ///   - limit: The maximum number of bytes that `source` may have, holes included; `nil` for no limit.
    /// - Throws: ``FileError`` with `EFBIG` if it has more.
    public func copyContent(
        of source: borrowing File,
        limit: Int64? = nil
    ) throws(FileError) {
        let size = try source.status().size
        guard size <= limit ?? .max else {
            throw FileError("copy", path: source.path, errno: .fileTooLarge)
        }
        // EOPNOTSUPP, EXDEV and EINVAL are common here. After any other error, the copy below reports the
        // cause.
        if stage_clone_content(source.descriptor.rawValue, descriptor.rawValue) == 0 {
            return try truncate(to: size)
        }
        var (start, end): (Int64, Int64) = (0, 0)
        while try source.findStored(from: &start, to: &end, size: size) {
            try copy(start..<end, of: source)
            start = end
        }
        try truncate(to: size)
    }

    private func findStored(
        from start: inout Int64,
        to end: inout Int64,
        size: Int64
    ) throws(FileError) -> Bool {
        try Directory.attempt("read", at: path) {
            unsafe stage_next_stored(descriptor.rawValue, size, &start, &end)
        } == 1
    }

    /// Copies a range of bytes to the same offset; stops early if the other file has become shorter.
    private func copy(_ range: Range<Int64>, of source: borrowing File) throws(FileError) {
        var offset = range.lowerBound
        while offset < range.upperBound {
            let count = stage_copy_range(
                source.descriptor.rawValue,
                descriptor.rawValue,
                offset,
                Int(min(range.upperBound - offset, 1 << 30))
            )
            if count == 0 { return }
            if count < 0 {
                if errno == EINTR { continue }
                return try copyThroughMemory(offset..<range.upperBound, of: source)
            }
            offset += Int64(count)
        }
    }

    private func copyThroughMemory(
        _ range: Range<Int64>,
        of source: borrowing File
    ) throws(FileError) {
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        var offset = range.lowerBound
        while offset < range.upperBound {
            let count = try source.read(into: &buffer, at: offset)
            if count == 0 { return }
            let wanted = min(count, Int(range.upperBound - offset))
            try write(buffer.span.extracting(0..<wanted), at: offset)
            offset += Int64(wanted)
        }
    }
}

import CLinux
import Glibc
import SystemPackage

/// Copies up to `count` bytes at `offset` from one file to the same offset of another, in the kernel where
/// the file system supports it, and returns the number copied: 0 at the end, `nil` on an error, which
/// errno(3) holds.
func copyRange(of source: CInt, to file: CInt, at offset: Int64, count: Int) -> Int? {
    while true {
        let moved = stage_copy_range(source, file, offset, count)
        if moved >= 0 { return moved }
        switch errno {
        case EINTR: continue
        case EXDEV, EINVAL, ENOSYS, EOPNOTSUPP, EPERM: break
        default: return nil
        }
        return copyThroughMemory(of: source, to: file, at: offset, count: min(count, 256 << 10))
    }
}

private func copyThroughMemory(
    of source: CInt,
    to file: CInt,
    at offset: Int64,
    count: Int
) -> Int? {
    unsafe withUnsafeTemporaryAllocation(byteCount: count, alignment: 16) { buffer in
        var read: Int
        repeat {
            read = unsafe pread(source, buffer.baseAddress, count, off_t(offset))
        } while read < 0 && errno == EINTR
        guard read > 0 else { return read == 0 ? 0 : nil }
        let bytes = unsafe UnsafeRawBufferPointer(rebasing: buffer[..<read])
        guard let reason = unsafe writeAll(bytes, to: file, at: offset) else { return read }
        errno = reason.rawValue
        return nil
    }
}

extension Errno {
    /// The current value of errno(3).
    static var current: Errno { Errno(rawValue: errno) }
}

import Glibc
import StageModel
import StageSystem
import SystemPackage

/// Random access to a file through two buffers: headers form two ascending sequences, the local ones and
/// those of the central directory.
final class ZipBytes {
    private struct Window {
        var start: Int64 = 0
        var bytes: [UInt8] = []
    }

    let size: Int64
    private let file: FileDescriptor
    private var windows = [Window(), Window()]
    private var lastUsed = 0

    private static let windowSize = 32 << 10

    init(_ file: FileDescriptor) {
        self.file = file
        size = FileStatus(of: file)?.size ?? 0
    }

    /// Returns the unsigned little-endian number of up to eight bytes at `position`; a number above
    /// `Int64.max` becomes negative.
    func number(at position: Int64, count: Int) throws(ArchiveError) -> Int64 {
        let (window, index) = try window(at: position, count: count)
        var number: Int64 = 0
        for byte in windows[window].bytes[index..<index + count].reversed() {
            number = number << 8 | Int64(byte)
        }
        return number
    }

    /// Returns the `count` bytes at `position`.
    func bytes(at position: Int64, count: Int) throws(ArchiveError) -> [UInt8] {
        guard count <= Self.windowSize else {
            let first = try bytes(at: position, count: Self.windowSize)
            return first
                + (try bytes(at: position + Int64(first.count), count: count - first.count))
        }
        let (window, index) = try window(at: position, count: count)
        return Array(windows[window].bytes[index..<index + count])
    }

    private func window(
        at position: Int64,
        count: Int
    ) throws(ArchiveError) -> (Int, Int) {
        guard position >= 0, position <= size - Int64(count) else {
            throw .damaged(entry: nil, "a header is cut short")
        }
        for index in [lastUsed, 1 - lastUsed] {
            let start = windows[index].start
            guard position >= start,
                position + Int64(count) <= start + Int64(windows[index].bytes.count)
            else { continue }
            lastUsed = index
            return (index, Int(position - start))
        }
        lastUsed = 1 - lastUsed
        try fill(lastUsed, at: position)
        guard windows[lastUsed].bytes.count >= count else {
            throw .damaged(entry: nil, "a header is cut short")
        }
        return (lastUsed, 0)
    }

    private func fill(_ index: Int, at position: Int64) throws(ArchiveError) {
        var bytes = [UInt8](repeating: 0, count: Self.windowSize)
        var count: Int
        repeat {
            count = unsafe pread(file.rawValue, &bytes, bytes.count, off_t(position))
        } while count < 0 && errno == EINTR
        guard count >= 0 else {
            throw .fileSystem(FileError("read", path: "archive", errno: .current))
        }
        bytes.removeLast(bytes.count - count)
        windows[index] = Window(start: position, bytes: bytes)
    }
}

import Dispatch
import StageDigest
import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// Computes the digest of a part file while it grows, on a thread beside the one that receives.
///
/// It reads what was written back from the file, so the digest is that of what will be unpacked, and
/// bytes that an earlier run had left are covered like all others. No byte is held in memory.
final class DigestFollower: Sendable {
    private let queue = DispatchQueue(label: "stagepack.digest")
    private let size: ByteCount
    private let target = Mutex(Target())
    /// Only the jobs of `queue` use it, one after the other; the lock is never waited for.
    private let progress = Mutex<Progress?>(nil)

    /// How far the file is to be read.
    private struct Target {
        var path: FilePath?
        var end: Int64 = 0
        var isScheduled = false
    }

    /// How far the file was read.
    private struct Progress: ~Copyable {
        let file: File
        var hasher = SHA256Hasher()
        var offset: Int64 = 0
        var buffer: [UInt8]

        init(path: FilePath, size: ByteCount) throws(FileError) {
            file = try File.open(readingRegular: path)
            let capacity = min(max(size.rawValue, 4096), 256 << 10)
            buffer = [UInt8](repeating: 0, count: Int(capacity))
        }

        /// Digests the bytes up to `end`, as far as the file has them.
        mutating func read(to end: Int64) throws(FileError) {
            while offset < end {
                let count = try file.read(into: &buffer, at: offset)
                if count == 0 { return }
                let wanted = min(count, Int(end - offset))
                Self.update(&hasher, with: buffer, count: wanted)
                offset += Int64(wanted)
            }
        }

        private static func update(
            _ hasher: inout SHA256Hasher,
            with buffer: borrowing [UInt8],
            count: Int
        ) {
            hasher.update(buffer.span.extracting(0..<count))
        }

        consuming func finish() -> Digest { hasher.finish() }
    }

    /// Creates a follower of a file that will have `size` bytes.
    init(size: ByteCount) {
        self.size = size
    }

    /// Takes note that the content is in the file at `path` from now on, and begins again if that is
    /// another file than before.
    func follow(_ path: FilePath) {
        target.withLock { target in
            guard target.path != path else { return }
            target.path = path
            target.end = 0
        }
    }

    /// Takes note that the file holds the first `end` bytes of the content.
    func follow(to end: ByteCount) {
        let mustSchedule = target.withLock { target in
            target.end = end.rawValue
            defer { target.isScheduled = true }
            return !target.isScheduled
        }
        if mustSchedule { queue.async { [self] in catchUp() } }
    }

    /// Returns the digest of the file at `path`, or `nil` if it does not have all of the content.
    ///
    /// - Throws: ``FileError`` if the file cannot be read: nothing is known of its content then.
    func digest(of path: FilePath) async throws(FileError) -> Digest? {
        let result = await withCheckedContinuation { continuation in
            queue.async { [self] in
                continuation.resume(
                    returning: Result { () throws(FileError) in try complete(path) }
                )
            }
        }
        return try result.get()
    }

    private func catchUp() {
        let (path, end) = target.withLock { target in
            target.isScheduled = false
            return (target.path, target.end)
        }
        guard let path else { return }
        // What cannot be read now is read again when the digest is asked for.
        try? advance(path, to: end)
    }

    private func advance(_ path: FilePath, to end: Int64) throws(FileError) {
        try progress.withLock { progress throws(FileError) in
            if progress?.file.path != path { progress = try Progress(path: path, size: size) }
            try progress?.read(to: end)
        }
    }

    private func complete(_ path: FilePath) throws(FileError) -> Digest? {
        try advance(path, to: size.rawValue)
        return progress.withLock { progress in
            let isComplete = progress?.offset == size.rawValue
            guard let complete = progress.take(), isComplete else { return nil }
            return complete.finish()
        }
    }
}

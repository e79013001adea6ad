import Dispatch
import StageDigest
import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// Computes the digest of a partial file while it grows, on a thread other than the receiving one.
///
/// Reads the bytes back from the file, so the digest covers the bytes that will be unpacked, including those
/// that an earlier run received. Holds no more than one buffer in memory.
final class DigestFollower: Sendable {
    private let queue = DispatchQueue(label: "stagepack.digest")
    private let size: ByteCount
    private let target = Mutex(Target())
    /// Used by the jobs of `queue` only, one at a time; the lock is never contended.
    private let progress = Mutex<Progress?>(nil)

    /// The file to read, and the offset to read up to.
    private struct Target {
        var path: FilePath?
        var end: Int64 = 0
        var isScheduled = false
    }

    /// The file being read, and the offset reached.
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

        /// Updates the digest with the bytes up to `end`, or to the end of the file if that comes first.
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

    /// Creates a follower of a file that will be `size` bytes long.
    init(size: ByteCount) {
        self.size = size
    }

    /// Sets the path of the file.
    ///
    /// A path other than the one before restarts the digest.
    func follow(_ path: FilePath) {
        target.withLock { target in
            guard target.path != path else { return }
            target.path = path
            target.end = 0
        }
    }

    /// Sets the number of bytes that the file holds, and schedules reading them.
    func follow(to end: ByteCount) {
        let mustSchedule = target.withLock { target in
            target.end = end.rawValue
            defer { target.isScheduled = true }
            return !target.isScheduled
        }
        if mustSchedule { queue.async { [self] in catchUp() } }
    }

    /// Returns the digest of the file at `path`, or `nil` if the file is incomplete.
    ///
    /// - Throws: ``FileError`` if the file cannot be read.
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
        // After an error, `digest(of:)` reads these bytes again.
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

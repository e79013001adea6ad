import Glibc
import StageSystem

/// A batch of work for a writing thread: whole files, pieces of larger files, directories and links, in one
/// reusable buffer.
///
/// Batches are independent of each other: any thread may write any of them at any time.
@safe final class WriteBatch {
    /// A file, directory, link or piece to write.
    ///
    /// `path` and `content` are offsets in the buffer.
    struct Job {
        enum Kind {
            case file(isExecutable: Bool)
            case directory
            case link
            /// Bytes of a file that is already open.
            case piece(OpenFile, offset: Int64)
        }

        var kind: Kind
        /// The offset of the zero-terminated path.
        var path = 0
        var pathLength = 0
        /// The offset of the content, or of the target of a link.
        var content = 0
        var contentLength = 0
    }

    static let capacity = 512 << 10
    /// Files up to this size are added whole, larger ones in pieces.
    static let wholeFileLimit = 256 << 10
    private static let maximumJobs = 4096

    let buffer: UnsafeMutableRawBufferPointer
    private(set) var used = 0
    private(set) var jobs: [Job] = []

    init() {
        unsafe buffer = .allocate(byteCount: Self.capacity, alignment: 4096)
    }

    deinit {
        unsafe buffer.deallocate()
    }

    var isEmpty: Bool { jobs.isEmpty }

    /// The number of bytes that can be added.
    var freeBytes: Int { jobs.count < Self.maximumJobs ? Self.capacity - used : 0 }

    func clear() {
        used = 0
        jobs.removeAll(keepingCapacity: true)
    }

    /// Returns whether an entry with such a path and content fits.
    func fits(_ path: String, content: Int) -> Bool {
        path.utf8.count + 1 + content <= freeBytes
    }

    /// Adds a file, a directory or a link, whose content is appended next.
    func begin(_ kind: Job.Kind, path: String) {
        var job = Job(kind: kind, path: used, pathLength: path.utf8.count)
        append(path)
        unsafe buffer[used] = 0
        used += 1
        job.content = used
        jobs.append(job)
    }

    /// Appends to the content of the last job.
    func append(content bytes: UnsafeRawBufferPointer) {
        unsafe copy(bytes)
        jobs[jobs.count - 1].contentLength += bytes.count
    }

    /// Appends the target of the link that was added last.
    func append(target: String) {
        append(target)
        jobs[jobs.count - 1].contentLength = target.utf8.count
        unsafe buffer[used] = 0
        used += 1
    }

    /// Appends as many of the bytes at `offset` of an open file as fit, and returns their number.
    func append(_ bytes: UnsafeRawBufferPointer, of file: OpenFile, at offset: Int64) -> Int {
        let count = min(bytes.count, freeBytes)
        guard count > 0 else { return 0 }
        if case .piece(let last, let start)? = jobs.last?.kind, last === file,
            start + Int64(jobs[jobs.count - 1].contentLength) == offset
        {
            jobs[jobs.count - 1].contentLength += count
        } else {
            jobs.append(
                Job(kind: .piece(file, offset: offset), content: used, contentLength: count)
            )
        }
        unsafe copy(UnsafeRawBufferPointer(rebasing: bytes[..<count]))
        return count
    }

    private func append(_ text: String) {
        var text = text
        text.withUTF8 { unsafe copy(UnsafeRawBufferPointer($0)) }
    }

    private func copy(_ bytes: UnsafeRawBufferPointer) {
        unsafe UnsafeMutableRawBufferPointer(rebasing: buffer[used...])
            .copyMemory(from: bytes)
        used += bytes.count
    }
}

/// A file that is written in pieces, closed after its last piece.
final class OpenFile: Sendable {
    let descriptor: CInt
    let path: String
    private let startsWriting: Bool
    private let isOwner: Bool

    /// Takes ownership of an open file; with `startsWriting`, writeback of its pages starts when it is
    /// closed.
    init(_ descriptor: CInt, path: String, startsWriting: Bool) {
        self.descriptor = descriptor
        self.path = path
        self.startsWriting = startsWriting
        isOwner = true
    }

    /// Borrows a file that its owner closes after the last use of this one.
    init(borrowing descriptor: CInt, path: String) {
        self.descriptor = descriptor
        self.path = path
        startsWriting = false
        isOwner = false
    }

    deinit {
        guard isOwner else { return }
        if startsWriting { startWriteback(descriptor) }
        close(descriptor)
    }
}

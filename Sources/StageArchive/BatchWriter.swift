import Glibc
import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// The reading thread's side of the writer: collects entries into batches.
///
/// The reading thread alone writes a pack that fits into one batch; the first full batch starts the worker threads.
struct BatchWriter: ~Copyable {
    private let pool = WritePool()
    private let root: Directory
    private let counter: DirectoryCounter
    private let writer: TreeWriter
    private var batch = WriteBatch()
    private var threads = Threads()

    /// Threads that are joined when their owner is released.
    private struct Threads: ~Copyable {
        private var first: SystemThread?
        private var second: SystemThread?
        private(set) var areStarted = false

        mutating func start(
            root: Directory,
            counter: DirectoryCounter,
            pool: WritePool
        ) throws(FileError) {
            areStarted = true
            first = try Self.thread(root, counter: counter, pool: pool)
            if sysconf(CInt(_SC_NPROCESSORS_ONLN)) > 3 {
                second = try Self.thread(root, counter: counter, pool: pool)
            }
        }

        consuming func join() {
            first.take()?.join()
            second.take()?.join()
        }

        private static func thread(
            _ root: Directory,
            counter: DirectoryCounter,
            pool: WritePool
        ) throws(FileError) -> SystemThread {
            try SystemThread(name: "stage-write") {
                pool.work(with: TreeWriter(root: root, counter: counter))
            }
        }
    }

    init(root: Directory, limits: UnpackLimits) {
        self.root = root
        counter = DirectoryCounter(maximumDirectories: limits.directories)
        writer = TreeWriter(root: root, counter: counter)
    }

    /// The number of directories created.
    var directories: Int { counter.directories.load(ordering: .relaxed) }

    /// Stops the worker threads; batches that are not written yet are discarded.
    consuming func close() {
        pool.close()
        threads.join()
    }

    /// Starts a file, a directory or a link; `content` bytes are appended next.
    mutating func begin(
        _ kind: WriteBatch.Job.Kind,
        path: String,
        content: Int
    ) throws(ArchiveError) {
        if !batch.fits(path, content: content) { try submitBatch() }
        batch.begin(kind, path: path)
    }

    /// Appends to the content of the entry started last.
    mutating func append(_ bytes: UnsafeRawBufferPointer) {
        unsafe batch.append(content: bytes)
    }

    /// Adds a link.
    mutating func addLink(_ path: String, to target: String) throws(ArchiveError) {
        try begin(.link, path: path, content: target.utf8.count + 1)
        batch.append(target: target)
    }

    /// Appends bytes at `offset` of an open file.
    mutating func append(
        _ bytes: UnsafeRawBufferPointer,
        of file: OpenFile,
        at offset: Int64
    ) throws(ArchiveError) {
        var added = 0
        while added < bytes.count {
            let rest = unsafe UnsafeRawBufferPointer(rebasing: bytes[added...])
            let count = unsafe batch.append(rest, of: file, at: offset + Int64(added))
            if count == 0 { try submitBatch() }
            added += count
        }
    }

    /// Creates a file that is written in pieces.
    func create(
        _ path: String,
        isExecutable: Bool,
        startsWriting: Bool
    ) throws(ArchiveError) -> OpenFile {
        let file = try withPath(path) { (path: PathBytes) throws(ArchiveError) in
            try writer.createFile(path, isExecutable: isExecutable)
        }
        return OpenFile(file, path: path, startsWriting: startsWriting)
    }

    /// Opens a file that was unpacked before, or returns the error.
    func open(_ path: String) throws(ArchiveError) -> Result<OpenFile, Errno> {
        let result = try withPath(path) { writer.openFile($0) }
        return result.map { OpenFile($0, path: path, startsWriting: false) }
    }

    /// Waits until everything added is written, and writes batches meanwhile.
    mutating func finish() throws(ArchiveError) {
        if threads.areStarted {
            if !batch.isEmpty { try submitBatch() }
            while let batch = try pool.remaining() { try write(batch) }
        } else {
            try writer.write(batch)
            batch.clear()
        }
    }

    /// Submits the batch and obtains an empty one.
    private mutating func submitBatch() throws(ArchiveError) {
        if !threads.areStarted {
            do throws(FileError) {
                try threads.start(root: root, counter: counter, pool: pool)
            } catch {
                throw .fileSystem(error)
            }
        }
        pool.submit(batch)
        while true {
            switch pool.supply() {
            case .empty(let empty):
                batch = empty
                return
            case .toWrite(let full):
                try write(full)
            case .failed(let failure):
                throw failure
            }
        }
    }

    private func write(_ batch: WriteBatch) throws(ArchiveError) {
        do {
            try writer.write(batch)
            pool.done(batch, failure: nil)
        } catch {
            pool.done(batch, failure: error)
            throw error
        }
    }

    private func withPath<Result>(
        _ path: String,
        body: (PathBytes) throws(ArchiveError) -> Result
    ) throws(ArchiveError) -> Result {
        let count = path.utf8.count
        return try unsafe withUnsafeTemporaryAllocation(byteCount: count + 1, alignment: 1) {
            buffer throws(ArchiveError) in
            unsafe buffer.copyBytes(from: path.utf8)
            unsafe buffer[count] = 0
            return try body(unsafe PathBytes(buffer, count: count))
        }
    }
}

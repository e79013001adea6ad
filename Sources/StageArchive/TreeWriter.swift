import CLinux
import Glibc
import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// The directory count of a pack, shared by the threads that write it.
final class DirectoryCounter: Sendable {
    let directories = Atomic<Int>(0)
    let maximumDirectories: Int

    init(maximumDirectories: Int) { self.maximumDirectories = maximumDirectories }
}

/// Creates files, directories and links below a directory, on one thread.
///
/// Never opens a file through a symbolic link or an existing name, so the kernel detects name collisions. The
/// most recently used directories stay open: a file in one of them takes three system calls.
@safe final class TreeWriter {
    private let root: Directory
    private let counter: DirectoryCounter
    private var cache = DirectoryCache()
    /// Indicates, for each requested mode, whether new files get exactly that mode; `nil` before the first
    /// file.
    private var fileModeIsExact: Bool?
    private var executableModeIsExact: Bool?
    private var directoryModeIsExact: Bool?

    init(root: Directory, counter: DirectoryCounter) {
        self.root = root
        self.counter = counter
    }

    /// Writes all jobs of `batch`.
    func write(_ batch: WriteBatch) throws(ArchiveError) {
        let base = unsafe batch.buffer
        for job in batch.jobs {
            let content = unsafe UnsafeRawBufferPointer(
                rebasing: base[job.content..<job.content + job.contentLength]
            )
            let path = unsafe PathBytes(
                UnsafeMutableRawBufferPointer(rebasing: base[job.path...]),
                count: job.pathLength
            )
            switch job.kind {
            case .file(let isExecutable):
                let file = try createFile(path, isExecutable: isExecutable)
                defer { close(file) }
                try unsafe write(content, to: file, path: path)
            case .directory:
                try makeDirectory(path)
            case .link:
                try unsafe makeLink(path, to: content)
            case .piece(let file, let offset):
                try unsafe write(content, to: file, at: offset)
            }
        }
    }

    /// Creates the file at `path` and its missing parent directories.
    func createFile(_ path: PathBytes, isExecutable: Bool) throws(ArchiveError) -> CInt {
        let parent = try directory(path, length: path.parentLength)
        let mode: mode_t = isExecutable ? 0o755 : 0o644
        while true {
            let file = unsafe stage_open_at(
                parent,
                path.name,
                O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                mode
            )
            if file >= 0 {
                try setMode(of: file, to: mode, isExecutable: isExecutable, path: path)
                return file
            }
            if errno != EINTR {
                throw refusal(of: path, reason: Errno(rawValue: errno))
            }
        }
    }

    /// Opens the file at `path`, which was unpacked before, for reading.
    func openFile(_ path: PathBytes) -> Result<CInt, Errno> {
        let flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK
        let above = path.parentLength
        if above == 0 { return unsafe open(path.name, in: root.descriptor.rawValue, flags: flags) }
        switch openDirectory(path, length: above) {
        case .success(let parent):
            defer { close(parent) }
            return unsafe open(path.name, in: parent, flags: flags)
        case .failure(let error):
            return .failure(error)
        }
    }

    /// Opens a single path component, which must not be a link.
    private func open(
        _ name: UnsafePointer<CChar>,
        in parent: CInt,
        flags: CInt
    ) -> Result<CInt, Errno> {
        while true {
            let open = unsafe stage_open_at(parent, name, flags, 0)
            if open >= 0 { return .success(open) }
            if errno != EINTR { return .failure(Errno(rawValue: errno)) }
        }
    }

    /// Writes all of `bytes` at the file position.
    private func write(
        _ bytes: UnsafeRawBufferPointer,
        to file: CInt,
        path: @autoclosure () -> PathBytes
    ) throws(ArchiveError) {
        guard let reason = unsafe writeAll(bytes, to: file, at: nil) else { return }
        throw .fileSystem(FileError("write", path: root.path.appending(path().text), errno: reason))
    }

    private func write(
        _ bytes: UnsafeRawBufferPointer,
        to file: OpenFile,
        at offset: Int64
    ) throws(ArchiveError) {
        guard let reason = unsafe writeAll(bytes, to: file.descriptor, at: offset) else { return }
        throw .fileSystem(FileError("write", path: root.path.appending(file.path), errno: reason))
    }

    private func makeDirectory(_ path: PathBytes) throws(ArchiveError) {
        let parent = try directory(path, length: path.parentLength)
        guard try !makeDirectory(path, length: path.count, in: parent) else { return }
        // An existing directory was created for this entry or one below it; a file or a link is a collision.
        _ = try directory(path, length: path.count)
    }

    private func makeLink(
        _ path: PathBytes,
        to target: UnsafeRawBufferPointer
    ) throws(ArchiveError) {
        let parent = try directory(path, length: path.parentLength)
        guard let target = unsafe target.baseAddress?.assumingMemoryBound(to: CChar.self) else {
            return
        }
        guard unsafe symlinkat(target, parent, path.name) != 0 else { return }
        throw refusal(of: path, reason: Errno(rawValue: errno))
    }

    /// Returns the open directory of the first `count` bytes of `path`, and creates it if it does not exist.
    private func directory(_ path: PathBytes, length count: Int) throws(ArchiveError) -> CInt {
        if count == 0 { return root.descriptor.rawValue }
        if let open = unsafe cache.find(path.prefix(count)) { return open }
        let parent = try directory(path, length: path.parentLength(of: count))
        var reason = Errno.noSuchFileOrDirectory
        for attempt in 0...1 {
            switch openDirectory(path, length: count, in: parent) {
            case .success(let open):
                unsafe cache.add(path.prefix(count), descriptor: open)
                return open
            case .failure(let error):
                reason = error
            }
            guard attempt == 0, reason == .noSuchFileOrDirectory else { break }
            _ = try makeDirectory(path, length: count, in: parent)
        }
        let prefix = path.text(count)
        switch reason {
        case .notDirectory, .tooManySymbolicLinkLevels:
            throw .collision(entry: prefix, .fileAndDirectory)
        default:
            throw .fileSystem(FileError("open", path: root.path.appending(prefix), errno: reason))
        }
    }

    /// Opens the directory of the first `count` bytes of `path` in its open parent.
    private func openDirectory(
        _ path: PathBytes,
        length count: Int,
        in parent: CInt,
        flags: CInt = O_PATH
    ) -> Result<CInt, Errno> {
        let above = path.parentLength(of: count)
        return unsafe path.terminated(at: count) { start in
            unsafe open(
                start + (above == 0 ? 0 : above + 1),
                in: parent,
                flags: flags | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW
            )
        }
    }

    /// Opens the directory of the first `count` bytes of `path` one component at a time, without creating
    /// any.
    private func openDirectory(_ path: PathBytes, length count: Int) -> Result<CInt, Errno> {
        var open: CInt?
        for end in 1...count where end == count || path.isSeparator(at: end) {
            let result = openDirectory(path, length: end, in: open ?? root.descriptor.rawValue)
            if let open { close(open) }
            guard case .success(let next) = result else { return result }
            open = next
        }
        return open.map { .success($0) } ?? .failure(.invalidArgument)
    }

    /// Creates the directory of the first `count` bytes of `path` in its open parent, and returns whether it
    /// did not exist before.
    private func makeDirectory(
        _ path: PathBytes,
        length count: Int,
        in parent: CInt
    ) throws(ArchiveError) -> Bool {
        let above = path.parentLength(of: count)
        let nameStart = above == 0 ? 0 : above + 1
        let status = unsafe path.terminated(at: count) { start in
            unsafe mkdirat(parent, start + nameStart, 0o755)
        }
        guard status == 0 else {
            if errno == EEXIST { return false }
            let reason = Errno(rawValue: errno)
            throw .fileSystem(
                FileError("create", path: root.path.appending(path.text(count)), errno: reason)
            )
        }
        let made = counter.directories.add(1, ordering: .relaxed).newValue
        guard made <= counter.maximumDirectories else {
            throw .tooManyEntries(entry: path.text(count), limit: counter.maximumDirectories)
        }
        try setDirectoryMode(path, length: count, in: parent)
        return true
    }

    /// Sets the mode of a new file if the destination needs it.
    ///
    /// The umask or an inherited ACL of the destination may change modes: the first file of each mode shows
    /// whether they do, and only then each file's mode is set.
    private func setMode(
        of file: CInt,
        to mode: mode_t,
        isExecutable: Bool,
        path: PathBytes
    ) throws(ArchiveError) {
        let known = isExecutable ? executableModeIsExact : fileModeIsExact
        if known == true { return }
        if known == nil, let status = FileStatus(of: FileDescriptor(rawValue: file)) {
            let isExact = status.mode == mode
            if isExecutable { executableModeIsExact = isExact } else { fileModeIsExact = isExact }
            if isExact { return }
        }
        guard fchmod(file, mode) != 0 else { return }
        let reason = Errno(rawValue: errno)
        close(file)
        throw .fileSystem(FileError("change", path: root.path.appending(path.text), errno: reason))
    }

    private func setDirectoryMode(
        _ path: PathBytes,
        length count: Int,
        in parent: CInt
    ) throws(ArchiveError) {
        if directoryModeIsExact == true { return }
        let reason: Errno
        switch openDirectory(path, length: count, in: parent, flags: O_RDONLY) {
        case .success(let open):
            defer { close(open) }
            let status = FileStatus(of: FileDescriptor(rawValue: open))
            if directoryModeIsExact == nil { directoryModeIsExact = status?.mode == 0o755 }
            if directoryModeIsExact == true || fchmod(open, 0o755) == 0 { return }
            reason = .current
        case .failure(let error):
            reason = error
        }
        throw .fileSystem(
            FileError("change", path: root.path.appending(path.text(count)), errno: reason)
        )
    }

    /// Returns the error for a failed creation at `path`: a collision if the name exists.
    private func refusal(of path: PathBytes, reason: Errno) -> ArchiveError {
        guard reason == .fileExists else {
            return .fileSystem(
                FileError("create", path: root.path.appending(path.text), errno: reason)
            )
        }
        guard case .success(let open) = openDirectory(path, length: path.count) else {
            return .collision(entry: path.text, .sameName)
        }
        close(open)
        return .collision(entry: path.text, .fileAndDirectory)
    }
}

/// Writes all of `bytes`, and returns the error if this fails.
func writeAll(
    _ bytes: UnsafeRawBufferPointer,
    to file: CInt,
    at offset: Int64?
) -> Errno? {
    var written = 0
    while written < bytes.count {
        let rest = unsafe UnsafeRawBufferPointer(rebasing: bytes[written...])
        let count =
            if let offset {
                unsafe pwrite(file, rest.baseAddress, rest.count, Int(offset) + written)
            } else {
                unsafe Glibc.write(file, rest.baseAddress, rest.count)
            }
        if count >= 0 {
            written += count
        } else if errno != EINTR {
            return Errno(rawValue: errno)
        }
    }
    return nil
}

/// Starts writing a file's pages to disk, so that a later sync takes less time.
func startWriteback(_ file: CInt) {
    // A hint to the kernel; a later sync reports errors.
    _ = stage_start_writeback(file)
}

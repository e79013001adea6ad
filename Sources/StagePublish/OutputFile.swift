import StageDigest
import StageModel
import StageSystem
import SystemPackage

/// A file that gets its final name once it is on disk.
///
/// Not thread-safe. End it with ``complete()`` and ``publish()``, or with ``discard()``.
final class OutputFile {
    /// The number of bytes written.
    private(set) var size = ByteCount.zero
    /// The final path, which is not a link.
    let path: FilePath
    private let directory: Directory
    private let name: FilePath.Component
    private let temporary: TemporaryFile
    /// The access to the file that this one replaces; `nil` if there is none.
    private let replaced: FileAccess?
    private var hasher: SHA256Hasher? = SHA256Hasher()

    /// Creates a temporary file beside `output`, or beside the file that this link leads to, and removes those of killed
    /// processes.
    init(_ output: FilePath) throws(PackagingError) {
        let path = try PackagingError.wrapping { () throws(FileError) in
            try OutputFile.target(of: output)
        }
        guard let name = path.lastComponent, name.kind == .regular else {
            throw .file(FileError("create", path: path, errno: .isDirectory))
        }
        let above = path.removingLastComponent()
        do throws(FileError) {
            directory = try Directory.open(above.isEmpty ? "." : above)
            try Self.check(name, in: directory, at: path)
            let replaced = try directory.fileAccess(of: name)
            self.replaced = replaced
            temporary = try TemporaryFile.make(
                for: name,
                in: directory,
                permissions: replaced?.initialMode ?? .file
            )
        } catch {
            throw .file(error)
        }
        (self.path, self.name) = (path, name)
    }

    /// Returns the file that a link leads to, which must exist, and any other path as it is.
    ///
    /// The rename would replace the link, such as `/dev/stdout`.
    private static func target(of path: FilePath) throws(FileError) -> FilePath {
        guard FileStatus.isSymbolicLink(path) else { return path }
        // The kernel refuses links of other users in directories such as /tmp (`protected_symlinks`, proc(5)).
        _ = try File.open(readingRegular: path)
        guard let target = path.resolved else {
            throw FileError("create", path: path, errno: .noSuchFileOrDirectory)
        }
        // A user who may not write the target does not expect that it is replaced, as a file of a cache that links lead to.
        if let name = target.lastComponent {
            let folder = try Directory.open(target.removingLastComponent())
            _ = try folder.file(updatingExisting: FilePath(name))
        }
        return target
    }

    /// Throws for a directory, a device, a FIFO or a socket, and for a link to one.
    ///
    /// The rename would replace it, such as `/dev/null`.
    private static func check(
        _ name: FilePath.Component,
        in directory: Directory,
        at path: FilePath
    ) throws(FileError) {
        var present = try directory.status(following: name.string)
        if present == nil { present = try directory.status(FilePath(name)) }
        switch present?.kind {
        case .directory: throw FileError("create", path: path, errno: .isDirectory)
        // Throws, since it is not a regular file.
        case .other: _ = try File.open(readingRegular: path)
        case .file, .link, nil: break
        }
    }

    /// Appends bytes.
    func append(_ bytes: Span<UInt8>) throws(FileError) {
        try temporary.file.write(bytes, at: size.rawValue)
        hasher?.update(bytes)
        size = size + ByteCount(bytes.count)
    }

    /// Syncs the file, gives it the owner, the group and the permissions of the file that it replaces as far as this user
    /// may set them, and returns the digest of its bytes.
    func complete() throws(FileError) -> Digest {
        guard let hasher = hasher.take() else { preconditionFailure("a file is completed once") }
        if let replaced { try temporary.file.setAccess(replaced) }
        try temporary.file.synchronize()
        return hasher.finish()
    }

    /// Renames the complete file to its final name, replacing an existing file, and syncs the directory.
    func publish() throws(FileError) {
        try directory.rename(FilePath(temporary.name), over: name)
        try directory.synchronize()
    }

    /// Removes the temporary file.
    func discard() {
        // The first error is the one to report.
        _ = try? directory.remove(temporary.name)
    }
}

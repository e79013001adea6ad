import StageDigest
import StageModel
import StageSystem
import SystemPackage

/// A file that gets its name when all of it is on disk.
///
/// Belongs to one thread. ``publish()`` or ``discard()`` ends it.
final class OutputFile {
    /// How many bytes there are.
    private(set) var size = ByteCount.zero
    private let directory: Directory
    private let name: FilePath.Component
    private let temporary: FilePath.Component
    private let file: File
    private var hasher: SHA256Hasher? = SHA256Hasher()

    /// Creates the file beside `path`, under a name that nothing else has.
    init(_ path: FilePath) throws(PackagingError) {
        guard let name = path.lastComponent, name.kind == .regular else {
            throw .file(FileError("create", path, .isDirectory))
        }
        let mark = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        guard let temporary = FilePath.Component(".\(name.string).\(mark).tmp") else {
            throw .file(FileError("create", path, .invalidArgument))
        }
        let above = path.removingLastComponent()
        do throws(FileError) {
            directory = try Directory.open(above.isEmpty ? "." : above)
            guard try directory.status(FilePath(name))?.kind != .directory else {
                throw FileError("create", path, .isDirectory)
            }
            file = try directory.file(creating: FilePath(temporary))
        } catch {
            throw .file(error)
        }
        self.name = name
        self.temporary = temporary
    }

    /// Adds bytes at the end.
    func append(_ bytes: Span<UInt8>) throws(FileError) {
        try file.write(bytes, at: size.rawValue)
        hasher?.update(bytes)
        size = size + ByteCount(bytes.count)
    }

    /// Waits until the file is on disk, gives it its name, in place of whatever had it, and returns the
    /// digest of its bytes.
    func publish() throws(PackagingError) -> Digest {
        guard let hasher = hasher.take() else { preconditionFailure("a file is published once") }
        try PackagingError.wrapping { () throws(FileError) in
            try file.synchronize()
            try directory.rename(temporary, to: name, in: directory)
            try directory.synchronize()
        }
        return hasher.finish()
    }

    /// Removes the file.
    func discard() {
        // The error that counts is the one that led here.
        _ = try? directory.remove(temporary)
    }
}

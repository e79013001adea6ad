public import StageModel
import StageSystem
public import SystemPackage

/// Keeps a generation from being removed for as long as the value lives.
public final class Lease: Sendable {
    /// The pack.
    public let id: PackID
    /// The generation that is kept.
    public let generation: GenerationName
    /// The directory with the pack's files.
    public let content: FilePath
    private let lock: FileLock

    init(id: PackID, generation: GenerationName, content: FilePath, lock: consuming FileLock) {
        self.id = id
        self.generation = generation
        self.content = content
        self.lock = lock
    }
}

extension Directory {
    /// Opens a lease file for reading; `nil` where there is none, or it is no regular file, which a
    /// reader cannot have locked.
    func leaseFile(_ path: FilePath) throws(FileError) -> File? {
        do throws(FileError) {
            return try file(reading: path)
        } catch {
            guard error.isNotRegularFile else { throw error }
            return nil
        }
    }

    /// Opens the lease file of what is about to be removed, making one where there is none, or where it is
    /// no regular file.
    func file(removingBehind path: FilePath) throws(FileError) -> File {
        do throws(FileError) {
            return try file(updating: path, exactly: .file)
        } catch {
            guard error.isNotRegularFile, let name = path.lastComponent,
                let directory = try directory(path.removingLastComponent())
            else { throw error }
            try directory.removeTree(name)
            return try file(updating: path, exactly: .file)
        }
    }
}

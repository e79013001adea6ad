public import StageModel
import StageSystem
public import SystemPackage

/// A shared lock that keeps a generation from being deleted until the value is destroyed.
public final class Lease: Sendable {
    /// The pack.
    public let id: PackID
    /// The leased generation.
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
    /// Opens a lease file for reading; returns `nil` if it does not exist or is not a regular file, so that no
    /// reader can hold a lock on it.
    func leaseFile(_ path: FilePath) throws(FileError) -> File? {
        do throws(FileError) {
            return try file(reading: path)
        } catch {
            guard error.isNotRegularFile else { throw error }
            return nil
        }
    }

    /// Opens the lease file of a directory that is to be deleted; creates it if it does not exist or is not a
    /// regular file.
    func leaseFile(replacing path: FilePath) throws(FileError) -> File {
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

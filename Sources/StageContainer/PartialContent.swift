public import StageModel
public import StageSystem
public import SystemPackage

/// Single files of one version of an unstaged pack, with a lease that keeps them from being deleted until the
/// value is destroyed.
public final class PartialContent: Sendable {
    /// The content digest of the version.
    public let digest: Digest
    /// The directory with the complete files, in `content/`, and the incomplete ones.
    public let directory: Directory
    private let lock: FileLock

    /// The directory of the complete files; it need not exist.
    public var content: FilePath { directory.path.appending(ContainerLayout.content) }

    init(digest: Digest, directory: Directory, lock: consuming FileLock) {
        self.digest = digest
        self.directory = directory
        self.lock = lock
    }

    /// Returns whether a file exists at `path`, following links of the pack.
    ///
    /// Such a file is complete: it was verified and synced before it got its name.
    public func hasFile(_ path: FilePath) throws(ContainerError) -> Bool {
        try ContainerError.wrapping { () throws(FileError) in
            guard let content = try directory.directory(FilePath(ContainerLayout.content)),
                case .file = try content.entry(following: path)
            else { return false }
            return true
        }
    }
}

extension ContainerReader {
    /// Returns the single files of a version, or `nil` if there are none.
    ///
    /// They stay on disk for the lifetime of the value: deleting them requires an exclusive lock on the file
    /// that is named `lease` at that time.
    public func partialContent(of digest: Digest) throws(ContainerError) -> PartialContent? {
        try ContainerError.wrapping { () throws(FileError) in
            let name = ContainerLayout.partialContent(of: digest)
            let path = name.appending(ContainerLayout.lease)
            while let file = try root.leaseFile(path) {
                let inode = try file.status().inode
                // The holder of an exclusive lock is deleting the directory.
                guard let lock = try FileLock.attempt(file, mode: .shared) else { return nil }
                guard try root.status(path)?.inode == inode,
                    let directory = try root.directory(name)
                else { continue }
                return PartialContent(digest: digest, directory: directory, lock: lock)
            }
            return nil
        }
    }

    /// Returns the content digests of the indexed versions of a pack in the stored manifests, in order of
    /// application.
    ///
    /// Reads all stored manifests. Ignores manifests that cannot be read or are in a format of the
    /// application's own.
    public func offeredContent(of id: PackID) throws(ContainerError) -> [Digest] {
        var digests: [Digest] = []
        for application in try applications() {
            guard let record = try storedManifest(for: application),
                // The run that fetches this manifest reports the error.
                let manifest = try? record.manifest(of: application),
                let digest = manifest[id]?.index?.contentDigest, !digests.contains(digest)
            else { continue }
            digests.append(digest)
        }
        return digests
    }
}

extension Container {
    /// Returns the single files of a version, after creating their directory if necessary; returns `nil` while
    /// another process deletes them.
    public func makePartialContent(of digest: Digest) throws(ContainerError) -> PartialContent? {
        try ContainerError.wrapping { () throws(FileError) in
            let files = FilePath(ContainerLayout.files)
            _ = try root.makeDirectory(files, exactly: .directory)
            let name = ContainerLayout.partialContent(of: digest)
            do throws(FileError) {
                _ = try root.makeDirectory(name, exactly: .directory)
                _ = try root.file(updating: name.appending(ContainerLayout.lease), exactly: .file)
            } catch {
                // Another process has moved the directory away to delete it.
                guard error.errno == .noSuchFileOrDirectory else { throw error }
            }
        }
        return try reader.partialContent(of: digest)
    }

    /// Deletes the single files of versions that `isWanted` does not accept, except those that are in use.
    ///
    /// Safe at any time. A process that has a file open can continue to read it.
    public func removePartialContent(
        isWanted: (Digest) -> Bool
    ) throws(ContainerError) -> Removal {
        try ContainerError.wrapping { () throws(FileError) in
            var removal = Removal()
            guard let files = try root.directory(FilePath(ContainerLayout.files)) else {
                return removal
            }
            for entry in try files.entries() {
                removal.attempt { removal throws(FileError) in
                    // Other entries do not belong there.
                    if entry.kind == .directory,
                        let digest = try? Digest(hexadecimal: entry.path.string)
                    {
                        guard !isWanted(digest) else { return }
                        guard try removePartialContent(entry.name, in: files) else {
                            removal.inUse += 1
                            return
                        }
                    } else {
                        try files.removeTree(entry.name)
                    }
                    removal.leftovers += 1
                }
            }
            return removal
        }
    }

    /// Deletes the single files of a pack's offered versions, except those that are in use.
    ///
    /// Reads all stored manifests if the container has single files.
    func removePartialContent(of id: PackID) throws(ContainerError) -> Removal {
        guard try ContainerError.wrapping(hasPartialContent) else { return Removal() }
        let digests = try reader.offeredContent(of: id)
        return try removePartialContent { !digests.contains($0) }
    }

    /// Returns whether the container has single files of any version.
    private func hasPartialContent() throws(FileError) -> Bool {
        try root.directory(FilePath(ContainerLayout.files))?.entries().isEmpty == false
    }

    /// Deletes the single files of a version; returns `false` if they are in use.
    private func removePartialContent(
        _ name: FilePath.Component,
        in files: Directory
    ) throws(FileError) -> Bool {
        let path = FilePath(name).appending(ContainerLayout.lease)
        let file: File
        do throws(FileError) {
            file = try files.leaseFile(replacing: path)
        } catch {
            // Another process has deleted the directory.
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return true
        }
        let inode = try file.status().inode
        guard let lease = try FileLock.attempt(file, mode: .exclusive) else { return false }
        // Another process has created a new lease file, and uses the directory.
        guard try files.status(path)?.inode == inode else { return false }
        // Holds the lock until the end, so that `gc` does not take the directory for an abandoned area.
        try removeLeased(name, in: files, prefix: ContainerLayout.files.string)
        _ = consume lease
        return true
    }
}

extension ContainerLayout {
    /// Returns the directory for single files of a version.
    static func partialContent(of digest: Digest) -> FilePath {
        FilePath(files).appending(downloadName(of: digest))
    }
}

public import StageModel
public import StageSystem
public import SystemPackage

/// Single files of one version of a pack that is not staged, kept from being removed for as long as the
/// value lives.
public final class PartialContent: Sendable {
    /// The digest that the version's content is known by.
    public let digest: Digest
    /// What holds the files that are complete, in `content/`, and what is on its way there.
    public let directory: Directory
    private let lock: FileLock

    /// The directory with the files that are complete, which need not exist yet.
    public var content: FilePath { directory.path.appending(ContainerLayout.content) }

    init(digest: Digest, directory: Directory, lock: consuming FileLock) {
        self.digest = digest
        self.directory = directory
        self.lock = lock
    }

    /// Whether a file is here at `path`, links of the pack followed.
    ///
    /// It is whole then: each was verified, and was on disk, before it got its name.
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
    /// Returns the single files of a version that are here, or `nil` if there are none.
    ///
    /// They stay for as long as the value does: a remover needs the lock exclusively, on the very file
    /// that has the name `lease` at that moment.
    public func partialContent(of digest: Digest) throws(ContainerError) -> PartialContent? {
        try ContainerError.wrapping { () throws(FileError) in
            let name = ContainerLayout.partialContent(of: digest)
            let path = name.appending(ContainerLayout.lease)
            while let file = try root.leaseFile(path) {
                let inode = try file.status().inode
                // Whoever has it exclusively is removing everything.
                guard let lock = try FileLock.attempt(file, mode: .shared) else { return nil }
                guard try root.status(path)?.inode == inode,
                    let directory = try root.directory(name)
                else { continue }
                return PartialContent(digest: digest, directory: directory, lock: lock)
            }
            return nil
        }
    }

    /// Returns the digests of what the stored manifests offer of a pack by single files, of each
    /// application's in turn.
    ///
    /// Costs the reading of the manifests. One that cannot be read, or is in a format of the application's own, offers
    /// nothing.
    public func offeredContent(of id: PackID) throws(ContainerError) -> [Digest] {
        var digests: [Digest] = []
        for application in try applications() {
            guard let record = try storedManifest(for: application),
                // Said where the manifest is asked for.
                let manifest = try? record.manifest(),
                let digest = manifest[id]?.index?.contentDigest, !digests.contains(digest)
            else { continue }
            digests.append(digest)
        }
        return digests
    }
}

extension Container {
    /// Returns the single files of a version, making the place for them if need be; `nil` while another
    /// process removes them.
    public func makePartialContent(of digest: Digest) throws(ContainerError) -> PartialContent? {
        try ContainerError.wrapping { () throws(FileError) in
            let files = FilePath(ContainerLayout.files)
            _ = try root.makeDirectory(files, exactly: .directory)
            let name = ContainerLayout.partialContent(of: digest)
            do throws(FileError) {
                _ = try root.makeDirectory(name, exactly: .directory)
                _ = try root.file(updating: name.appending(ContainerLayout.lease), exactly: .file)
            } catch {
                // Moved away by a remover since it was made.
                guard error.errno == .noSuchFileOrDirectory else { throw error }
            }
        }
        return try reader.partialContent(of: digest)
    }

    /// Removes the single files of versions that `isWanted` does not name by their digest, except those
    /// that somebody uses.
    ///
    /// Safe at any time. Who has a file open goes on reading it.
    public func removePartialContent(
        isWanted: (Digest) -> Bool
    ) throws(ContainerError) -> Removal {
        try ContainerError.wrapping { () throws(FileError) in
            var removal = Removal()
            guard let files = try root.directory(FilePath(ContainerLayout.files)) else {
                return removal
            }
            for entry in try files.entries() {
                // Another name is none of ours, and what is no directory has no files.
                if entry.kind == .directory,
                    let digest = try? Digest(hexadecimal: entry.name.string)
                {
                    guard !isWanted(digest) else { continue }
                    guard try removePartialContent(entry.name, in: files) else {
                        removal.inUse += 1
                        continue
                    }
                } else {
                    try files.removeTree(entry.name)
                }
                removal.leftovers += 1
            }
            return removal
        }
    }

    /// Removes the single files of a pack, of what the stored manifests offer, except those that somebody
    /// uses.
    public func removePartialContent(of id: PackID) throws(ContainerError) -> Removal {
        let digests = try reader.offeredContent(of: id)
        return try removePartialContent { !digests.contains($0) }
    }

    /// Removes the single files of a version, and returns `false` if somebody uses them.
    private func removePartialContent(
        _ name: FilePath.Component,
        in files: Directory
    ) throws(FileError) -> Bool {
        let path = FilePath(name).appending(ContainerLayout.lease)
        let file: File
        do throws(FileError) {
            file = try files.file(removingBehind: path)
        } catch {
            // Removed by another process meanwhile.
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return true
        }
        let inode = try file.status().inode
        guard let lease = try FileLock.attempt(file, mode: .exclusive) else { return false }
        // Removed and made anew since it was opened: somebody uses that.
        guard try files.status(path)?.inode == inode else { return false }
        // As generations go; locked to the end, so that no sweep takes it for a dead process's.
        try removeLeased(name, in: files, ContainerLayout.files.string)
        _ = consume lease
        return true
    }
}

extension ContainerLayout {
    /// The directory for single files of a version.
    static func partialContent(of digest: Digest) -> FilePath {
        FilePath(files).appending(downloadName(of: digest))
    }
}

public import StageModel
public import StageSystem
public import SystemPackage

/// Read access to a container: the current generation of each pack, and leases on them.
///
/// Reading requires no write permission, no network and no database.
public final class ContainerReader: Sendable {
    /// The directory of the container.
    public let root: Directory
    private let packs: Directory

    /// Opens the container at `path`, or returns `nil` if there is none.
    ///
    /// - Throws: ``ContainerError/unknownFormat(_:found:known:)`` if a later version of StagePack created the
    ///   container.
    public static func open(_ path: FilePath) throws(ContainerError) -> ContainerReader? {
        let root: Directory
        do throws(FileError) {
            root = try Directory.open(path)
        } catch {
            if error.errno == .noSuchFileOrDirectory { return nil }
            throw .file(error)
        }
        guard try ContainerRecord.read(from: root) != nil else { return nil }
        return try ContainerError.wrapping { () throws(FileError) in
            guard let packs = try root.directory(FilePath(ContainerLayout.packs)) else {
                return nil
            }
            return ContainerReader(root: root, packs: packs)
        }
    }

    init(root: Directory, packs: Directory) {
        self.root = root
        self.packs = packs
    }

    /// Indicates whether the open container was deleted, or is not the one at its path any more.
    ///
    /// Costs one stat(2) and one fstat(2). A path without a status, as for a process that may not search a directory above
    /// it any more, changes nothing while the container exists.
    package var isReplaced: Bool {
        guard let open = FileStatus(of: packs.descriptor) else { return false }
        guard let found = FileStatus(following: packs.path) else { return open.linkCount == 0 }
        return found.device != open.device || found.inode != open.inode
    }

    /// Returns the free space of the container's file system.
    public func freeSpace() throws(ContainerError) -> FreeSpace {
        try ContainerError.wrapping { () throws(FileError) in try root.freeSpace() }
    }

    /// Returns the name of the pack's current generation, or `nil` if the pack is not staged.
    ///
    /// Costs one readlink(2).
    public func currentGeneration(of id: PackID) throws(ContainerError) -> GenerationName? {
        try ContainerError.wrapping { () throws(FileError) in try generation(of: id) }
    }

    /// Returns the version and content digest of the pack's current generation, or `nil` if the pack is not
    /// staged.
    ///
    /// Costs one readlink(2). A link to a generation whose name has another form counts as none. The files of
    /// the generation may be missing (see ``hasFiles(of:)``).
    public func stagedContent(of id: PackID) throws(ContainerError) -> GenerationName.Content? {
        try ContainerError.wrapping { () throws(FileError) in
            guard let target = try packs.link(named: id.text) else { return nil }
            return ContainerLayout.generationText(inLink: target, of: id)
                .flatMap(GenerationName.content)
        }
    }

    /// Returns whether the pack's current generation has its content directory, its lease file and its record.
    ///
    /// Without one of them no reader can use the pack, whatever its link says. Costs two fstatat(2).
    public func hasFiles(of id: PackID) throws(ContainerError) -> Bool {
        try stagedFiles(of: id) != nil
    }

    /// Returns the state of the files of the pack's current generation, or `nil` if the content directory, the lease
    /// file or the record is missing.
    ///
    /// Costs two fstatat(2).
    package func stagedFiles(of id: PackID) throws(ContainerError) -> StagedFiles? {
        try ContainerError.wrapping { () throws(FileError) in
            // The link leads to the content, and '..' from there to the generation: each path needs both.
            guard let lease = try packs.status(following: "\(id.text)/../lease"),
                try packs.exists(following: "\(id.text)/../pack.json")
            else { return nil }
            return StagedFiles(wereRead: lease.wasReadSinceChange)
        }
    }

    /// Returns whether a reader has used a generation of the pack since it was staged.
    ///
    /// A lease file is published with an access time of zero, and readers read a byte of it. Counts only reads after
    /// the last change of the file, so a container that was copied, as into the layer of an image, is unread. With the mount
    /// option `noatime`, reads are not recorded.
    public func hasBeenLoaded(_ id: PackID) throws(ContainerError) -> Bool {
        guard let files = try stagedFiles(of: id) else { return try hasReadLease(of: id) }
        if files.wereRead { return true }
        return try hasBeenLoaded(besidesUnreadGenerationOf: id)
    }

    /// Returns whether a reader has used another generation of a pack than the current one, which has all of its files and
    /// is unread.
    ///
    /// Costs one fstatat(2) if there is no other generation, and the file system counts links of directories.
    package func hasBeenLoaded(
        besidesUnreadGenerationOf id: PackID
    ) throws(ContainerError) -> Bool {
        let links = try ContainerError.wrapping { () throws(FileError) in
            try root.status(following: Self.generationsPath(of: id))?.linkCount
        }
        // Apart from its own two links a directory has one for each directory in it; where the file system does
        // not count them, it never has three.
        return links == 3 ? false : try hasReadLease(of: id)
    }

    /// Returns whether the lease file of a generation of the pack has been read, staged or not.
    private func hasReadLease(of id: PackID) throws(ContainerError) -> Bool {
        try ContainerError.wrapping { () throws(FileError) in
            try root.contains(
                file: ContainerLayout.lease,
                inDirectoriesOf: Self.generationsPath(of: id)
            ) { $0.wasReadSinceChange }
        }
    }

    private static func generationsPath(of id: PackID) -> String {
        "\(ContainerLayout.generations.string)/\(id)"
    }

    /// Acquires a lease on the pack's current generation, or returns `nil` if the pack is not staged.
    ///
    /// The generation stays on disk for the lifetime of the lease, even if another one is published meanwhile:
    /// deleting it requires the lock exclusively. If the link still refers to the generation after the shared
    /// lock was acquired, the generation is not being deleted. If the lease file is still the locked one, the
    /// generation was not deleted and published again under the same name in between.
    ///
    /// - Parameters:
    ///   - id: The pack.
    ///   - marksUse: `true` if an application reads the pack, so that ``hasBeenLoaded(_:)`` reports it.
    /// - Returns: The lease, or `nil` if the pack is not staged.
    /// - Throws: ``ContainerError/file(_:)`` if the container cannot be read.
    public func lease(
        _ id: PackID,
        marksUse: Bool = true
    ) throws(ContainerError) -> Lease? {
        try ContainerError.wrapping { () throws(FileError) in
            while let generation = try generation(of: id) {
                let directory = path(of: generation, id)
                let name = directory.appending(ContainerLayout.lease)
                guard let file = try root.leaseFile(name) else {
                    guard try self.generation(of: id) != generation else { return nil }
                    continue
                }
                let inode = try file.status().inode
                guard let lock = try FileLock.attempt(file, mode: .shared) else {
                    // The generation was replaced and is being deleted, unless it is being evicted or the link
                    // is stale.
                    guard try self.generation(of: id) != generation else { return nil }
                    continue
                }
                guard try self.generation(of: id) == generation,
                    try root.status(name)?.inode == inode
                else { continue }
                if marksUse { lock.touch() }
                return Lease(
                    id: id,
                    generation: generation,
                    content: root.path.pushing(directory).appending(ContainerLayout.content),
                    lock: lock
                )
            }
            return nil
        }
    }

    /// Returns whether the content of the pack's current generation has a file or directory at `path`, following
    /// links; `false` if the pack is not staged.
    ///
    /// Acquires no lease, so the generation may be deleted at any time. Costs one fstatat(2).
    package func hasEntry(at path: FilePath, of id: PackID) throws(ContainerError) -> Bool {
        try ContainerError.wrapping { () throws(FileError) in
            try packs.exists(following: "\(id.text)/\(path.string)")
        }
    }

    private func generation(of id: PackID) throws(FileError) -> GenerationName? {
        guard let target = try packs.link(named: id.text) else { return nil }
        return ContainerLayout.generation(inLink: target, of: id)
    }

    /// Returns the IDs of the staged packs, in order.
    public func stagedPacks() throws(ContainerError) -> [PackID] {
        try ContainerError.wrapping { () throws(FileError) in
            // Ignores temporary links.
            try packs.entries().filter { $0.kind == .link }
                .compactMap { try? PackID($0.path.string) }.sorted()
        }
    }

    /// Returns the IDs of the packs that have a directory instead of the link, in order.
    ///
    /// A copy of a container that followed links has these. The packs count as not staged.
    package func copiedPacks() throws(ContainerError) -> [PackID] {
        try ContainerError.wrapping { () throws(FileError) in
            try packs.entries().filter { $0.kind == .directory }
                .compactMap { try? PackID($0.path.string) }.sorted()
        }
    }

    /// Returns whether the pack has a directory instead of its link.
    func isCopied(_ id: PackID) throws(ContainerError) -> Bool {
        try ContainerError.wrapping { () throws(FileError) in
            try packs.status(FilePath(id.component))?.kind == .directory
        }
    }

    /// Returns the unpinned packs, without `others`: the staged ones, and those whose links were lost when
    /// the container was copied.
    ///
    /// The pin of a pack without a link is in effect again once 'repair' has made the link.
    package func unpinnedPacks(
        except others: Set<PackID>
    ) throws(ContainerError) -> [PackID] {
        var found: [PackID] = []
        for id in try stagedPacks() where !others.contains(id) {
            if try pin(of: id) == nil { found.append(id) }
        }
        for id in try copiedPacks() where !others.contains(id) {
            if try recordedPin(of: id) == nil { found.append(id) }
        }
        return found
    }

    /// Returns the record of the pack's current generation, or `nil` if the pack is not staged.
    public func record(of id: PackID) throws(ContainerError) -> StagedPack? {
        while let generation = try currentGeneration(of: id) {
            if let record = try record(of: generation, id) { return record }
            // The generation was deleted after reading the link, unless the link is stale.
            guard try currentGeneration(of: id) != generation else { return nil }
        }
        return nil
    }

    /// Returns the record of the pack's current generation, or `nil` if the pack is not staged or its record is
    /// damaged.
    package func intactRecord(of id: PackID) throws(ContainerError) -> StagedPack? {
        guard let generation = try currentGeneration(of: id) else { return nil }
        return try intactRecord(of: generation, id)
    }

    func record(of generation: GenerationName, _ id: PackID) throws(ContainerError) -> StagedPack? {
        let name = path(of: generation, id).appending(ContainerLayout.packRecord)
        return try JSONRecord.read(parsing: StagedPack.self, at: name, in: root)
    }

    func path(of generation: GenerationName, _ id: PackID) -> FilePath {
        FilePath(ContainerLayout.generations).appending(id.component)
            .appending(generation.component)
    }
}

/// The state of the files of a staged generation.
package struct StagedFiles: Equatable, Sendable {
    /// True if a reader has used them since they were staged.
    package var wereRead: Bool
}

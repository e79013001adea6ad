public import StageModel
public import StageSystem
public import SystemPackage

/// A container as a reader sees it: the current generation of each pack, and leases on them.
///
/// Reading needs no right to write, touches no network and no database.
public final class ContainerReader: Sendable {
    /// The directory of the container.
    public let root: Directory
    private let packs: Directory

    /// Opens the container at `path`, or returns `nil` if there is none.
    ///
    /// - Throws: ``ContainerError/unknownFormat(_:found:known:)`` if a later version of StagePack made
    ///   the container.
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

    /// Returns the name of the pack's current generation, or `nil` if it is not staged.
    ///
    /// Costs one readlink(2).
    public func currentGeneration(of id: PackID) throws(ContainerError) -> GenerationName? {
        try ContainerError.wrapping { () throws(FileError) in try generation(of: id) }
    }

    /// Returns what the pack's current generation was made from, or `nil` if the pack is not staged.
    ///
    /// Costs one readlink(2). A link that names a generation of no known form counts as none.
    public func stagedContent(of id: PackID) throws(ContainerError) -> GenerationName.Content? {
        try ContainerError.wrapping { () throws(FileError) in
            guard let target = try packs.link(named: id.text) else { return nil }
            return ContainerLayout.generationText(inLink: target, of: id)
                .flatMap(GenerationName.content)
        }
    }

    /// Takes a lease on the pack's current generation, or returns `nil` if the pack is not staged.
    ///
    /// The generation stays for as long as the lease does, whatever is published meanwhile: a remover
    /// needs the lock exclusively, and unlinks a generation before it asks for the lock. So a link
    /// that still names the generation after the lock was taken proves that it is not being removed.
    /// That the lease file is still the one that was locked proves that the generation was not removed
    /// and published again under the same name in between.
    ///
    /// - Parameters:
    ///   - id: The pack.
    ///   - marksUse: Whether this is the application's reading, as ``hasBeenLoaded(_:)`` tells later.
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
                    // Replaced and removed since the link was read: unless the link is stale for good.
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

    private func generation(of id: PackID) throws(FileError) -> GenerationName? {
        guard let target = try packs.link(named: id.text) else { return nil }
        return ContainerLayout.generation(inLink: target, of: id)
    }

    /// Returns the ids of the staged packs, in order.
    public func stagedPacks() throws(ContainerError) -> [PackID] {
        try ContainerError.wrapping { () throws(FileError) in
            // Names that are no pack's are links about to be put in place.
            try packs.entries().filter { $0.kind == .link }
                .compactMap { try? PackID($0.name.string) }.sorted()
        }
    }

    /// Returns what the record of the pack's current generation says, or `nil` if it is not staged.
    public func record(of id: PackID) throws(ContainerError) -> StagedPack? {
        while let generation = try currentGeneration(of: id) {
            if let record = try record(of: generation, id) { return record }
            // Removed since the link was read, unless the link is stale for good.
            guard try currentGeneration(of: id) != generation else { return nil }
        }
        return nil
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

public import StageModel
import StageSystem
import SystemPackage

/// A generation on disk, with the properties that eviction depends on.
public struct StoredGeneration: Equatable, Sendable {
    /// Roles of a generation for its pack.
    @nonexhaustive
    public enum Role: Equatable, Sendable {
        /// Readers use the generation.
        case current
        /// A rollback would make the generation current.
        case previous
        /// The generation is neither current nor the previous one.
        case obsolete
    }

    /// The pack.
    public var id: PackID
    /// The name of the generation.
    public var name: GenerationName
    /// The role of the generation.
    public var role: Role
    /// The estimated space on disk, which counts for a quota: the size of the files, and a block for each of them, or
    /// for each directory if there are more, and for the generation.
    ///
    /// Deleting the generation frees less if it shares files with others by hard links.
    public var size: ByteCount
    /// The time of the last use or, if later, of staging, in seconds since 1970.
    public var lastUsed: Int64
    /// `true` if a reader holds a lease on the generation.
    public var isLeased: Bool
    /// `true` if the pack is pinned to the generation.
    public var isPinned: Bool
    /// `true` if a copy of the container has a directory instead of the pack's link; 'repair' makes the link again from
    /// one of the pack's generations, so all of them stay.
    package var isCopied = false
    /// The measured space and inodes on disk; `nil` if they were not measured.
    package var occupied: OccupiedSpace?
    /// The files, links and directories that the record names; deleting the generation frees fewer inodes if it shares files
    /// with others by hard links.
    package var recordedInodes = 0

    /// Creates the value from its parts.
    public init(
        id: PackID,
        name: GenerationName,
        role: Role,
        size: ByteCount,
        lastUsed: Int64 = 0,
        isLeased: Bool = false,
        isPinned: Bool = false
    ) {
        self.id = id
        self.name = name
        self.role = role
        self.size = size
        self.lastUsed = lastUsed
        self.isLeased = isLeased
        self.isPinned = isPinned
    }

    /// The space that a file needs beyond its size, on common file systems: at most a block and an inode.
    public static let overheadOfFile = ByteCount.kibibytes(4)

    /// Returns the estimated space on disk for the files of a pack.
    public static func size(_ installedSize: ByteCount, fileCount: Int) -> ByteCount {
        size(installedSize, fileCount: fileCount, directoryCount: 0)
    }

    /// Returns the estimated space on disk for the files and directories of a pack.
    ///
    /// The blocks that are counted for files are enough for the directories, too, unless there are more directories than files.
    static func size(
        _ installedSize: ByteCount,
        fileCount: Int,
        directoryCount: Int
    ) -> ByteCount {
        let blocks = Int64(max(fileCount, directoryCount) + 1)
        return installedSize + ByteCount(overheadOfFile.rawValue * blocks)
    }

    /// Returns the estimated space on disk of a generation that has the offered version of a pack.
    package static func size(of pack: Pack) -> ByteCount {
        size(
            pack.installedSize,
            fileCount: pack.fileCount,
            directoryCount: pack.directoryCount ?? 0
        )
    }
}

extension ContainerReader {
    /// Returns the packs that have generations on disk, staged or not, in order.
    public func packsWithGenerations() throws(ContainerError) -> [PackID] {
        try ContainerError.wrapping { () throws(FileError) in
            let name = FilePath(ContainerLayout.generations)
            guard let directory = try root.directory(name) else { return [] }
            // Ignores names that are not IDs of packs.
            return try directory.entries().filter { $0.kind == .directory }
                .compactMap { try? PackID($0.path.string) }.sorted()
        }
    }

    /// Returns the generations of a pack that are on disk, sorted by name.
    public func generations(of id: PackID) throws(ContainerError) -> [GenerationName] {
        try ContainerError.wrapping { () throws(FileError) in
            let name = FilePath(ContainerLayout.generations).appending(id.component)
            guard let directory = try root.directory(name) else { return [] }
            return try directory.entries().filter { $0.kind == .directory }
                .map { GenerationName($0.name) }.sorted()
        }
    }

    /// Returns the generations of all packs.
    ///
    /// Reads a record for each generation. Tests for leases without acquiring a lock.
    public func inventory() throws(ContainerError) -> [StoredGeneration] {
        var all: [StoredGeneration] = []
        for id in try packsWithGenerations() {
            let current = try currentGeneration(of: id)
            let previous = try previousGeneration(of: id)
            let isPinned = try pin(of: id) != nil
            let isCopied = current == nil ? try self.isCopied(id) : false
            for name in try generations(of: id) {
                let role: StoredGeneration.Role =
                    name == current ? .current : name == previous ? .previous : .obsolete
                if var stored = try stored(name, of: id, as: role) {
                    stored.isPinned = isPinned && role == .current
                    stored.isCopied = isCopied
                    all.append(stored)
                }
            }
        }
        return all
    }

    /// Returns the properties of a generation; `nil` if it has been deleted meanwhile.
    private func stored(
        _ name: GenerationName,
        of id: PackID,
        as role: StoredGeneration.Role
    ) throws(ContainerError) -> StoredGeneration? {
        let record = try intactRecord(of: name, id)
        return try ContainerError.wrapping { () throws(FileError) in
            let path = path(of: name, id).appending(ContainerLayout.lease)
            guard let lease = try root.leaseFile(path) else { return nil }
            var stored = StoredGeneration(
                id: id,
                name: name,
                role: role,
                size: StoredGeneration.size(
                    record?.installedSize ?? .zero,
                    fileCount: record?.fileCount ?? 0,
                    directoryCount: record?.directoryCount ?? 0
                ),
                lastUsed: max(try lease.status().accessed, record?.stagedAt ?? 0),
                isLeased: try FileLock.isHeld(on: lease)
            )
            stored.recordedInodes = (record?.fileCount ?? 0) + (record?.directoryCount ?? 0)
            return stored
        }
    }
}

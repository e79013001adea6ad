public import StageModel
import StageSystem
import SystemPackage

/// A generation on disk, as far as it matters to what may go to make room.
public struct StoredGeneration: Equatable, Sendable {
    /// What a generation is to its pack.
    public enum Role: Equatable, Sendable {
        /// It is what readers get.
        case current
        /// It is what a rollback brings back.
        case previous
        /// It is neither.
        case obsolete
    }

    /// The pack.
    public var id: PackID
    /// Which of its generations.
    public var name: GenerationName
    /// What it is to the pack.
    public var role: Role
    /// What it takes on disk: its files, and a block for each and for itself.
    public var size: ByteCount
    /// When it was loaded last, or staged if that was later, in seconds since 1970.
    public var lastUsed: Int64
    /// Whether somebody reads it.
    public var isLeased: Bool
    /// Whether the pack is pinned to it.
    public var isPinned: Bool

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

    /// What a file takes beyond its bytes, on the file systems in use: at most a block and an inode.
    public static let overheadOfFile = ByteCount.kibibytes(4)

    /// What the files of a pack take on disk.
    public static func size(_ installedSize: ByteCount, fileCount: Int) -> ByteCount {
        installedSize + ByteCount(overheadOfFile.rawValue * Int64(fileCount + 1))
    }
}

extension ContainerReader {
    /// Returns the packs that have generations on disk, staged or not, in order.
    public func packsWithGenerations() throws(ContainerError) -> [PackID] {
        try ContainerError.wrapping { () throws(FileError) in
            let name = FilePath(ContainerLayout.generations)
            guard let directory = try root.directory(name) else { return [] }
            // Names that are no pack's are none of ours.
            return try directory.entries().filter { $0.kind == .directory }
                .compactMap { try? PackID($0.name.string) }.sorted()
        }
    }

    /// Returns the generations of a pack that are on disk, in no order that means anything.
    public func generations(of id: PackID) throws(ContainerError) -> [GenerationName] {
        try ContainerError.wrapping { () throws(FileError) in
            let name = FilePath(ContainerLayout.generations).appending(id.component)
            guard let directory = try root.directory(name) else { return [] }
            return try directory.entries().filter { $0.kind == .directory }
                .map { GenerationName($0.name) }.sorted()
        }
    }

    /// Returns all generations of all packs, as they are at this moment.
    ///
    /// Costs the reading of a record for each. That somebody reads one is asked without taking a lock.
    public func inventory() throws(ContainerError) -> [StoredGeneration] {
        var all: [StoredGeneration] = []
        for id in try packsWithGenerations() {
            let current = try currentGeneration(of: id)
            let previous = try previousGeneration(of: id)
            let isPinned = try pin(of: id) != nil
            for name in try generations(of: id) {
                let role: StoredGeneration.Role =
                    name == current ? .current : name == previous ? .previous : .obsolete
                if var stored = try stored(name, id, role) {
                    stored.isPinned = isPinned && role == .current
                    all.append(stored)
                }
            }
        }
        return all
    }

    /// What is known of a generation; `nil` if it was removed meanwhile.
    private func stored(
        _ name: GenerationName,
        _ id: PackID,
        _ role: StoredGeneration.Role
    ) throws(ContainerError) -> StoredGeneration? {
        let record = try wholeRecord(of: name, id)
        return try ContainerError.wrapping { () throws(FileError) in
            let path = path(of: name, id).appending(ContainerLayout.lease)
            guard let lease = try root.leaseFile(path) else { return nil }
            return StoredGeneration(
                id: id,
                name: name,
                role: role,
                size: StoredGeneration.size(
                    record?.installedSize ?? .zero,
                    fileCount: record?.fileCount ?? 0
                ),
                lastUsed: max(try lease.status().accessed, record?.stagedAt ?? 0),
                isLeased: try FileLock.isHeld(on: lease)
            )
        }
    }
}

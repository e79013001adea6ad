package import StageContainer
package import StageModel
package import StageSystem

/// The free space and the free inodes of a container's file system, as plans, runs and `doctor` compare them with what
/// content needs.
///
/// Content fits if ``Planner/reserve`` and ``reservedInodes`` stay free beside it.
package struct AvailableSpace: Equatable, Sendable {
    /// The inodes that stay free, for locks and records: without any, no command could free space.
    package static let reservedInodes = 64

    /// The free bytes; `nil` if they are unknown: then every number fits.
    private var bytes: ByteCount?
    /// The free inodes; `nil` if they are unknown or the file system has no limit, as Btrfs: then every number fits.
    private var inodes: Int?

    /// The space of an unknown file system: everything fits.
    static let unknown = AvailableSpace(bytes: nil, inodes: nil)

    /// Space that is missing for content.
    package enum Shortage: Equatable, Sendable {
        /// Too few bytes are free: those that would have to be, with the reserve, and those that are.
        case bytes(needed: ByteCount, available: ByteCount)
        /// Too few inodes are free: those that would have to be, with the reserve, and those that are.
        case inodes(needed: Int, available: Int)
    }

    /// Creates the space of a file system with so many free bytes and inodes; `nil` where they are unknown or have no limit.
    package init(bytes: ByteCount?, inodes: Int?) {
        (self.bytes, self.inodes) = (bytes, inodes)
    }

    /// Creates the space of a file system.
    package init(_ free: FreeSpace) {
        self.init(bytes: ByteCount(free.bytes), inodes: free.inodes)
    }

    /// Returns the bytes and inodes to free for content; zero for a part that fits.
    package func missing(for usage: FileSystemUsage) -> FileSystemUsage {
        let (bytes, inodes) = (usage.bytes + Planner.reserve, usage.inodes + Self.reservedInodes)
        return FileSystemUsage(
            bytes: self.bytes.map { max(.zero, bytes - $0) } ?? .zero,
            inodes: self.inodes.map { max(0, inodes - $0) } ?? 0
        )
    }

    /// Returns the space that is missing for content, that of bytes first; `nil` if the content fits.
    package func shortage(for usage: FileSystemUsage) -> Shortage? {
        let missing = missing(for: usage)
        if let bytes, missing.bytes > .zero {
            return .bytes(needed: usage.bytes + Planner.reserve, available: bytes)
        }
        if let inodes, missing.inodes > 0 {
            return .inodes(needed: usage.inodes + Self.reservedInodes, available: inodes)
        }
        return nil
    }

    /// Returns the larger number of bytes and of inodes of two values; a number is unknown if one of the two is.
    func larger(_ other: Self) -> Self {
        var larger = Self.unknown
        if let bytes, let others = other.bytes { larger.bytes = max(bytes, others) }
        if let inodes, let others = other.inodes { larger.inodes = max(inodes, others) }
        return larger
    }

    /// Reserves space for content, after evictions have freed some.
    mutating func take(_ usage: FileSystemUsage, freeing freed: FileSystemUsage = .zero) {
        bytes = bytes.map { $0 + freed.bytes - usage.bytes }
        inodes = inodes.map { $0 + freed.inodes - usage.inodes }
    }
}

extension FreeSpace {
    /// The files that can be created, as a plan counts them; `nil` if the file system has no limit.
    package var inodes: Int? { files.map { Int(clamping: $0) } }
}

extension StageError {
    /// Creates the error of content that does not fit.
    init(_ shortage: AvailableSpace.Shortage) {
        self =
            switch shortage {
            case .bytes(let needed, let available): .noSpace(needed: needed, available: available)
            case .inodes(let needed, let available): .noInodes(needed: needed, available: available)
            }
    }
}

extension Plan.Refusal {
    /// Creates the refusal of a pack that does not fit on the file system.
    init(_ shortage: AvailableSpace.Shortage) {
        self =
            switch shortage {
            case .bytes(let needed, let available): .noSpace(needed: needed, available: available)
            case .inodes(let needed, let available): .noInodes(needed: needed, available: available)
            }
    }
}

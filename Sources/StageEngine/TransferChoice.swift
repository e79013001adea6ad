public import StageModel

/// The ways in which the missing content of an indexed pack can come here, and the one that takes the fewest
/// bytes: a pure value.
///
/// The index is fetched in any case and is not counted.
public struct TransferChoice: Equatable, Sendable {
    /// A way in which content comes here.
    public enum Way: String, Equatable, Sendable, Codable {
        /// Ranges of bundles, and of a delta set where there is one.
        case objects
        /// The archive of all files, as a whole.
        case archive
    }

    /// The bytes of objects: at most so many where ``dependsOnIndex``.
    public var objects: ByteCount
    /// The bytes of the archive that are not here; `nil` where the pack has none.
    public var archive: ByteCount?
    /// Whether files of the pack are staged, so that only the index tells how many bytes of objects are
    /// missing.
    public var dependsOnIndex: Bool
    /// The bytes of the delta set from the staged version; `nil` without one, and once they are counted.
    public var differences: ByteCount?

    /// Creates a choice from the bytes of its alternatives.
    public init(
        objects: ByteCount,
        archive: ByteCount?,
        dependsOnIndex: Bool = false,
        differences: ByteCount? = nil
    ) {
        self.objects = objects
        self.archive = archive
        self.dependsOnIndex = dependsOnIndex
        self.differences = differences
    }

    /// The way of the fewest bytes; objects where both take as many.
    public var way: Way {
        guard let archive, archive < objects else { return .objects }
        return .archive
    }

    /// The most bytes that are transferred.
    public var byteCount: ByteCount { min(objects, archive ?? objects) }
}

extension Planner {
    /// What a manifest tells of the ways to an indexed pack; `nil` for one that is an archive alone.
    public func transferChoice(for pack: Pack) -> TransferChoice? {
        guard let index = pack.index else { return nil }
        let base = staged[pack.id]?.contentDigest
        let delta = index.deltas.first { $0.base == base }
        return TransferChoice(
            objects: index.bundleSize,
            archive: pack.archive.map {
                max(.zero, $0.size - (downloaded[$0.digest] ?? .zero))
            },
            dependsOnIndex: base != nil,
            differences: delta?.frames?.size
        )
    }
}

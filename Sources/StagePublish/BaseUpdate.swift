import StageIndex
public import StageModel

/// The bytes that an update between two versions transfers, with everything of the older one in place, from servers
/// that give ranges.
public struct UpdateCost: Equatable, Sendable {
    /// The bytes of the index, or of its delta where that is smaller.
    public var index: ByteCount
    /// The bytes of ranges of bundles and of the delta set.
    public var objects: ByteCount
    /// The bytes of the archive; `nil` without one.
    public var archive: ByteCount?

    /// Creates a cost from its parts.
    public init(index: ByteCount, objects: ByteCount, archive: ByteCount?) {
        self.index = index
        self.objects = objects
        self.archive = archive
    }

    /// Computes the cost of an update from the indexes of both versions; `set` is the delta set, if there is one.
    init(
        from old: ContentIndex,
        to version: StoredIndex,
        indexDelta: ByteCount?,
        set: DeltaSet?
    ) {
        let estimate = UpdateEstimate(from: old, to: version.index, using: set)
        let size = version.reference.size
        self.init(
            index: min(indexDelta ?? size, size),
            objects: estimate.bundleBytes + estimate.deltaBytes,
            archive: version.archive?.size
        )
    }

    /// The bytes of the update in the way that a client chooses: the one of the fewest bytes.
    public var total: ByteCount { index + min(objects, archive ?? objects) }
}

/// An older version of a pack, and the objects that shorten the update from it.
public struct BaseUpdate: Equatable, Sendable {
    /// The delta set from the older version, or the reason why there is none.
    public enum DeltaSetResult: Equatable, Sendable {
        /// The set of this size was made.
        case made(ByteCount)
        /// The store had the set, of this size.
        case present(ByteCount)
        /// The set, of this size, would not make the update smaller, and was not kept.
        case useless(ByteCount)
        /// No changed part is shorter as a difference from the older version.
        case empty
    }

    /// The ``PackIndex/contentDigest`` of the older version.
    public var base: Digest
    /// The delta set.
    public var set: DeltaSetResult
    /// The delta of the index, with the delta set, as a manifest names them; `nil` where neither saves anything.
    public var delta: PackIndex.Delta?
    /// The bytes that the update transfers.
    public var cost: UpdateCost
    /// The bytes that it would transfer without a delta set.
    public var costWithoutSet: UpdateCost
}

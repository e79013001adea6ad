import StageIndex
package import StageModel

/// The bytes that an update between two versions transfers, if all files of the older version are present and
/// servers support ranges.
package struct UpdateCost: Equatable, Sendable {
    /// The bytes of the index, or of its delta if that is smaller; with a patch, its delta without the digests that follow
    /// from the patch, if there is one.
    package var index: ByteCount
    /// The bytes of the ranges of bundles and the delta set.
    package var objects: ByteCount
    /// The bytes of the archive; `nil` if there is none.
    package var archive: ByteCount?
    /// The bytes of the patch; `nil` if there is none, or if another way has no more bytes.
    package private(set) var patch: ByteCount?

    /// Computes the cost of an update from the indexes of both versions; `set` is the delta set between them,
    /// if any.
    init(
        from old: ContentIndex,
        to version: StoredIndex,
        indexDelta: ByteCount?,
        set: DeltaSet?
    ) {
        let estimate = UpdateEstimate(from: old, to: version.index, using: set)
        let size = version.reference.size
        index = min(indexDelta ?? size, size)
        objects = estimate.bundleBytes + estimate.deltaBytes
        archive = version.archive?.size
    }

    /// Counts a patch, and the delta of the index for its clients, if the update becomes smaller.
    mutating func count(_ patch: PackIndex.Patch) {
        let smallest = min(index, patch.indexDelta?.size ?? index)
        guard smallest + patch.size < total else { return }
        (index, self.patch) = (smallest, patch.size)
    }

    /// The bytes of the content in the way that clients choose: the smallest one.
    package var content: ByteCount { patch ?? min(objects, archive ?? objects) }

    /// The bytes of the update, including the index.
    package var total: ByteCount { index + content }
}

/// An older version of a pack, and the objects that make the update from it smaller.
package struct BaseUpdate: Equatable, Sendable {
    /// The size of a delta set or a patch from the older version, or the reason why there is none.
    package enum Outcome: Equatable, Sendable {
        /// The object was created, with this size.
        case made(ByteCount)
        /// The store already had the object, with this size.
        case present(ByteCount)
        /// The object, of this size, would not make the update smaller, and was discarded.
        case useless(ByteCount)
        /// For a delta set: no changed part is smaller as a difference from the older version. For a patch: the
        /// newer version has nothing that the older one lacks.
        case empty
        /// The object was not to be created.
        case disabled
    }

    /// The ``PackIndex/contentDigest`` of the older version.
    package var base: Digest
    /// The delta set.
    package var set: Outcome
    /// The patch.
    package var patch: Outcome
    /// The index delta with its delta set and its patch for the manifest; `nil` if none of them saves bytes.
    package var delta: PackIndex.Delta?
    /// The bytes that the update transfers.
    package var cost: UpdateCost
    /// The bytes that the update would transfer without a delta set and without a patch.
    package var plainCost: UpdateCost
}

import StageIndex
package import StageModel

/// The bytes that an update between two versions transfers, if all files of the older version are present and
/// servers support ranges.
///
/// ``TransferCandidates`` chooses the way, as for clients: a delta set or a patch counts only where they use it.
package struct UpdateCost: Equatable, Sendable {
    /// The ways that clients choose from.
    private var candidates: TransferCandidates
    /// The bytes of the ranges of bundles without a delta set.
    private let bundles: ByteCount
    /// The bytes of the ranges of bundles and the delta set, with its table; `nil` without a set.
    private var withSet: ByteCount?

    /// Computes the cost of an update without a delta set and without a patch from the indexes of both versions.
    ///
    /// - Parameters:
    ///   - old: The index of the older version.
    ///   - base: The digest of that index.
    ///   - version: The newer version.
    ///   - indexDelta: The bytes of the delta of its index from the older one.
    init(
        from old: ContentIndex,
        base: Digest,
        to version: StoredIndex,
        indexDelta: ByteCount
    ) {
        bundles = UpdateEstimate(from: old, to: version.index).bundleBytes
        // A set and a patch are counted one by one, whether the store has them or not.
        var reference = version.reference
        (reference.deltas, reference.fileTableDelta) = ([], nil)
        candidates = TransferCandidates(of: reference, isUpdate: true, from: base)
        candidates.indexDelta = indexDelta
        candidates.archive = version.archive?.size
    }

    /// Returns the cost with the delta set between the two versions.
    func counting(_ set: DeltaSet, from old: ContentIndex, to new: ContentIndex) -> UpdateCost {
        var cost = self
        let table = ByteCount(set.encodedTable().count)
        cost.candidates.set = TransferCandidates.SetSize(
            whole: table + ByteCount(set.byteCount),
            table: table
        )
        let estimate = UpdateEstimate(from: old, to: new, using: set)
        cost.withSet = estimate.bundleBytes + estimate.deltaBytes
        return cost
    }

    /// Counts a patch, and the delta of the index for its clients.
    mutating func count(_ patch: PackIndex.Patch) {
        candidates.namedPatch = patch
        candidates.patch = patch.size
    }

    /// The bytes of the ranges of bundles and the delta set, whether clients transfer them or not.
    package var objects: ByteCount { withSet ?? bundles }

    /// The bytes of the index, or of its delta if that is smaller; with a patch that clients take before the index, its delta
    /// without the digests that follow from the patch.
    package var index: ByteCount {
        guard candidates.choiceBeforeIndex != nil else { return candidates.indexSize }
        return candidates.namedPatch?.indexDelta?.size ?? candidates.indexSize
    }

    /// The bytes of the content in the way that clients choose, with the table of a delta set that they request for the choice.
    package var content: ByteCount {
        if let choice = candidates.choiceBeforeIndex { return choice.byteCount - index }
        let (choice, table) = candidates.choice(bundles: bundles, withSet: withSet)
        return table + choice.byteCount
    }

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

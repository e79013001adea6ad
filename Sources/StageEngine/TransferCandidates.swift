package import StageModel

/// The ways to transfer an indexed pack that its manifest entry names, with the bytes still to download: a pure value.
///
/// Answers before the index is known whether the archive or the patch is taken first, and afterwards, with the bytes of objects,
/// which way has the fewest bytes. Runs, plans and `diff` ask it.
package struct TransferCandidates: Equatable, Sendable {
    /// The index in the manifest.
    private let index: PackIndex
    /// The delta of the index from the staged version; `nil` if the manifest names none.
    private let delta: PackIndex.Delta?
    /// `true` if a version of the pack is staged.
    package let isUpdate: Bool
    /// The bytes of the archive still to download; `nil` if there is no archive or no space for it.
    package var archive: ByteCount?
    /// The bytes of the patch from the staged version still to download; `nil` if there is no patch, no space for it, or if it
    /// cannot be decoded.
    package var patch: ByteCount?

    /// Creates candidates without an archive and a patch.
    ///
    /// - Parameters:
    ///   - index: The index in the manifest.
    ///   - isUpdate: Pass `true` if a version of the pack is staged.
    ///   - base: The digest of the staged version's index; `nil` if it has none.
    package init(of index: PackIndex, isUpdate: Bool, from base: Digest?) {
        self.index = index
        self.isUpdate = isUpdate
        delta = index.delta(from: base)
    }

    /// The bytes of the index, or of its delta from the staged version if that is smaller.
    package var indexSize: ByteCount { min(delta?.size ?? index.size, index.size) }

    /// The patch in the manifest from the staged version; `nil` if there is none.
    package var namedPatch: PackIndex.Patch? { delta?.patch }

    /// The delta set in the manifest from the staged version; `nil` if there is none.
    package var namedSet: PackIndex.DeltaFrames? { delta?.frames }

    /// The choice by the manifest alone, with all bundles as the objects.
    ///
    /// Includes the index if it can be restored from the archive of a first installation.
    package var choiceByManifest: TransferChoice {
        if !isUpdate, let archive, let delta = index.fileTableDelta {
            var choice = TransferChoice(
                objects: index.bundleSize + index.size,
                archive: archive + delta.size
            )
            choice.includesIndex = true
            return choice
        }
        return TransferChoice(
            objects: index.bundleSize,
            archive: archive,
            patch: patch,
            dependsOnIndex: isUpdate,
            differences: namedSet?.size
        )
    }

    /// The choice of the way that is taken before the index, which its content completes; `nil` if the index is fetched first.
    ///
    /// A first installation takes the archive if the manifest names the delta of the index from its files, and bundles and index
    /// have more bytes.
    ///
    /// An update takes the patch if the manifest names a delta of the index for it, unless the delta from the staged version is one from the
    /// index itself, the delta for the patch has more bytes than the index or its other delta, or another way has
    /// fewer bytes by the manifest. So an update transfers no more than a plan without the index has for it.
    package var choiceBeforeIndex: TransferChoice? {
        if isUpdate { return choiceOfPatchBeforeIndex }
        let choice = choiceByManifest
        return choice.includesIndex && choice.way == .archive ? choice : nil
    }

    private var choiceOfPatchBeforeIndex: TransferChoice? {
        guard let patch, let delta, delta.base != index.contentDigest,
            let whole = delta.patch, let indexDelta = whole.indexDelta,
            indexDelta.size <= indexSize
        else { return nil }
        var choice = TransferChoice(
            objects: index.bundleSize + indexSize,
            archive: archive.map { $0 + indexSize },
            patch: patch + indexDelta.size
        )
        choice.patchSize = whole.size + indexDelta.size
        choice.precedesIndex = true
        choice.includesIndex = true
        let others = min(choice.objects, choice.archive ?? choice.objects)
        return choice.byteCount <= others ? choice : nil
    }

    /// Returns the choice with the index, which determines the bytes of objects.
    package func choice(objects: ByteCount) -> TransferChoice {
        var choice = TransferChoice(objects: objects, archive: archive, patch: patch)
        if patch != nil { choice.patchSize = namedPatch?.size }
        return choice
    }

    /// Returns whether the table of the delta set is requested before the final choice: with the set, objects may have fewer
    /// bytes than the way of `choice`, and the table is small beside that.
    ///
    /// - Parameter choice: The choice by the bytes of bundles without the set.
    /// - Returns: `true` if the table is requested.
    package func needsTable(toCompareWith choice: TransferChoice) -> Bool {
        guard choice.way != .objects, let set = namedSet else { return false }
        let least = choice.byteCount
        return set.size < least && set.tableSize.rawValue <= least.rawValue / 16
    }
}

extension Planner {
    /// Returns the ways to transfer an indexed pack, from its manifest entry; `nil` for a pack without an
    /// index.
    package func transferCandidates(for pack: Pack) -> TransferCandidates? {
        guard let index = pack.index else { return nil }
        let base = staged[pack.id]?.contentDigest
        var candidates = TransferCandidates(of: index, isUpdate: base != nil, from: base)
        func remaining(_ size: ByteCount, of digest: Digest) -> ByteCount {
            max(.zero, size - (downloaded[digest] ?? .zero))
        }
        candidates.archive = pack.archive.map { remaining($0.size, of: $0.digest) }
        candidates.patch = candidates.namedPatch.map { remaining($0.size, of: $0.digest) }
        return candidates
    }

    /// Returns the maximum number of bytes to transfer for the pack, provided that the server still has the
    /// content of partial downloads: the rest of the archive, or the index and the content.
    ///
    /// - Parameters:
    ///   - entry: The entry of the pack, with the choice of an indexed one.
    ///   - isFirst: Pass `true` if downloaded bytes of an archive count for this pack.
    /// - Returns: The number of bytes.
    func transferSize(of entry: Plan.Entry, isFirst: Bool) -> ByteCount {
        let pack = entry.pack
        if let choice = entry.transfer, let index = pack.index {
            return choice.byteCount + (choice.includesIndex ? .zero : index.size)
        }
        guard isFirst else { return pack.downloadSize }
        return max(.zero, pack.downloadSize - (downloaded[pack.contentDigest] ?? .zero))
    }
}

/// The ways to transfer an indexed pack that its manifest entry names, with the bytes still to download: a pure value.
///
/// Answers before the index is known whether the archive or the patch is taken first, and afterwards, with the bytes of objects,
/// which way has the fewest bytes. Runs, plans and `diff` ask it, and publishers, who keep what makes an update smaller.
package struct TransferCandidates: Equatable, Sendable {
    /// The sizes of a delta set.
    package struct SetSize: Equatable, Sendable {
        /// The bytes of the whole set.
        package var whole: ByteCount
        /// The bytes of the table at its beginning.
        package var table: ByteCount

        /// Creates the sizes of a set from those of its parts.
        package init(whole: ByteCount, table: ByteCount) {
            (self.whole, self.table) = (whole, table)
        }
    }

    /// The index in the manifest.
    private let index: PackIndex
    /// The digest of the staged version's index; `nil` if it has none.
    private let base: Digest?
    /// `true` if a version of the pack is staged.
    package let isUpdate: Bool
    /// The bytes of the delta of the index from the staged version; `nil` if the manifest names none.
    package var indexDelta: ByteCount?
    /// The delta set from the staged version; `nil` if the manifest names none.
    package var set: SetSize?
    /// The patch in the manifest from the staged version; `nil` if there is none.
    package var namedPatch: PackIndex.Patch?
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
        self.base = base
        let delta = index.delta(from: base)
        indexDelta = delta?.size
        set = delta?.frames.map { SetSize(whole: $0.size, table: $0.tableSize) }
        namedPatch = delta?.patch
    }

    /// The bytes of the index, or of its delta from the staged version if that is smaller.
    package var indexSize: ByteCount { min(indexDelta ?? index.size, index.size) }

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
            differences: set?.whole
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
        guard let patch, base != index.contentDigest, let whole = namedPatch,
            let completion = whole.indexDelta, completion.size <= indexSize
        else { return nil }
        var choice = TransferChoice(
            objects: index.bundleSize + indexSize,
            archive: archive.map { $0 + indexSize },
            patch: patch + completion.size
        )
        choice.patchSize = whole.size + completion.size
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

    /// The part of the least other way that the table of a delta set may have at most, as a divisor.
    ///
    /// Only the table tells which frames the set has. If they are few, bundles are needed as well, and the table is transferred in vain:
    /// so this is the most that an update transfers above the least other way.
    private static let largestTable = Int64(16)

    /// Returns whether the table of the delta set is requested before the final choice: with the set, objects may have fewer
    /// bytes than the way of `choice`, and the table is small beside that.
    ///
    /// - Parameter choice: The choice by the bytes of bundles without the set.
    /// - Returns: `true` if the table is requested.
    package func needsTable(toCompareWith choice: TransferChoice) -> Bool {
        guard choice.way != .objects, let set else { return false }
        let least = choice.byteCount
        return set.whole < least && set.table.rawValue <= least.rawValue / Self.largestTable
    }

    /// Returns whether objects are transferred by the delta set, once they are the chosen way.
    ///
    /// - Parameter bundles: The bytes of the ranges of bundles without the set.
    /// - Returns: `true` if the table has fewer bytes.
    package func usesSet(insteadOf bundles: ByteCount) -> Bool {
        guard let set else { return false }
        return set.table < bundles
    }

    /// Returns the choice of a client that has the index and all files of the staged version.
    ///
    /// - Parameters:
    ///   - bundles: The bytes of the ranges of bundles without a delta set.
    ///   - objects: The bytes of the ranges of bundles and the delta set, with its table; `nil` without a set.
    /// - Returns: The choice, and the bytes of a table that was requested for it, which are in none of its ways.
    package func choice(
        bundles: ByteCount,
        withSet objects: ByteCount?
    ) -> (choice: TransferChoice, table: ByteCount) {
        var choice = self.choice(objects: bundles)
        guard let set, let objects else { return (choice, .zero) }
        if needsTable(toCompareWith: choice) {
            return (self.choice(objects: objects - set.table), set.table)
        }
        if choice.way == .objects, usesSet(insteadOf: bundles) { choice.objects = objects }
        return (choice, .zero)
    }
}

import StageDigest
import StageFrame
package import StageIndex
package import StageModel
package import StageSystem
import SystemPackage

/// Creates objects that make updates to one version of a pack from older ones smaller, if all objects are in
/// the same store: for each older version an index delta, `i/<SHA-256>.from.<SHA-256>`, and a delta set,
/// `d/<SHA-256>`, or a patch, `p/<SHA-256>.of.<SHA-256>.from.<SHA-256>`, with an index delta for its clients,
/// `i/<SHA-256>.of.<SHA-256>.from.<SHA-256>`.
///
/// Needs no source files. Keeps objects that the store already has. Of set and patch, writes the one with which
/// the update is smaller, and neither if it does not become smaller: clients then download frames without a set,
/// or the archive if that is smaller.
package struct DeltaSetWriter: Sendable {
    /// The number of processors to use.
    package var width: Int
    /// Called with the bytes compared so far for one update, and the bytes to compare.
    package var report: @Sendable (_ done: ByteCount, _ total: ByteCount) -> Void
    /// Indicates whether delta sets are created; if not, the caller must pass an empty set.
    var makesSets = true
    /// Indicates whether patches are created.
    package var makesPatches = true
    /// The maximum number of bytes of each version in one part of a patch: what clients keep in memory, twice; 1 to 128
    /// MiB.
    package var patchPartSize = ManifestLimits.windowSize
    /// The compression level of new patches, 1 to 22; `nil` to choose level 12 or 19 for each part by its size and the
    /// expected saving.
    ///
    /// Patches that are in the store already stay, whatever their level. Levels above 19 take far more memory.
    package var patchLevel: Int?

    /// Creates a writer that uses `width` processors.
    package init(width: Int) {
        self.width = max(width, 1)
        report = { _, _ in }
    }

    /// Writes the missing objects.
    ///
    /// Checks all versions before it creates objects. Leaves only complete objects on failure or
    /// cancellation; when killed, it leaves hidden files, which the next run that is alone in the store
    /// removes.
    ///
    /// - Parameters:
    ///   - version: The new version.
    ///   - bases: The older versions.
    ///   - store: The store with the bundles of all versions.
    /// - Returns: The updates from the older versions, in their order.
    /// - Throws: ``PackagingError``; `base` for an unsuitable older version.
    package func write(
        to version: StoredIndex,
        from bases: [ContentIndex],
        in store: Directory
    ) async throws(PackagingError) -> [BaseUpdate] {
        let lock = try await StoreLock.forWriting(in: store)
        let updates = try await update(version, from: bases, in: store)
        _ = consume lock
        return updates
    }

    private func update(
        _ version: StoredIndex,
        from bases: [ContentIndex],
        in store: Directory
    ) async throws(PackagingError) -> [BaseUpdate] {
        try Self.checkBundles(of: version.index, in: store)
        for base in bases {
            if base == version.index { throw .base(Self.digest(of: base), .sameVersion) }
            try Self.checkBundles(of: base, in: store)
            guard base.isRelated(to: version.index) else {
                throw .base(Self.digest(of: base), .unrelated)
            }
        }
        var updates: [BaseUpdate] = []
        for base in bases { updates.append(try await write(to: version, from: base, in: store)) }
        try PackagingError.wrapping { () throws(FileError) in
            // Marks existing sets too: no manifest may have named them yet.
            try OfferMark.write(version, deltas: updates.compactMap(\.delta), to: store)
        }
        return updates
    }

    /// Writes the objects for one older version, while the caller holds the lock; `unpublished` contains the frames
    /// of the set if they were created before.
    func write(
        to version: StoredIndex,
        from old: ContentIndex,
        unpublished: UnpublishedDeltaSet? = nil,
        in store: Directory
    ) async throws(PackagingError) -> BaseUpdate {
        let indexDelta = IndexDelta(from: old, to: version)
        let base = indexDelta.base
        let bytes = try PackagingError.wrapping { () throws(FileError) in
            try indexDelta.bytes(in: store)
        }
        let size = ByteCount(bytes.count)
        let plainCost = UpdateCost(from: old, base: base, to: version, indexDelta: size)
        func cost(_ set: DeltaSet) -> UpdateCost {
            plainCost.counting(set, from: old, to: version.index)
        }
        var update = BaseUpdate(from: base, by: self, costing: plainCost)
        let named = version.reference.delta(from: base)
        var (frames, patch) = (named?.frames, named?.patch)
        let writer =
            try makesPatches ? patchWriter(from: old, base: base, to: version, in: store) : nil
        if let present = patch {
            update.patch = .present(present.size)
            // Without a writer, the patch keeps the delta of the index that the store has.
            let index = plainCost.index
            patch = try writer?.addIndexDelta(to: present, insteadOf: index, in: store) ?? present
            // The manifest names both, if the store has a set, too.
            update.cost = version.deltaSets[base].map(cost) ?? plainCost
            update.cost.count(patch ?? present)
        } else if unpublished == nil, let present = version.deltaSets[base] {
            update.set = .present(frames?.size ?? .zero)
            update.cost = cost(present)
            // The existing set may come from a run that created no patches.
            if let writer {
                patch = try await replaceSet(by: writer, in: store, updating: &update)
            }
            if patch != nil { frames = nil }
        } else {
            let draft = try await nonEmpty(unpublished, to: version, from: old, in: store)
            let set = draft?.set(from: base, to: version.reference.contentDigest)
            (frames, patch) = try await keepBetter(
                of: set,
                from: draft,
                costing: set.map(cost),
                and: writer,
                in: store,
                updating: &update
            )
        }
        // Clients find a delta set and a patch through the index delta, even if that saves no bytes by itself.
        guard size < version.reference.size || frames != nil || patch != nil else { return update }
        update.delta = try PackagingError.wrapping { () throws(FileError) in
            try indexDelta.write(bytes, frames: frames, patch: patch, to: store)
        }
        return update
    }

    private func patchWriter(
        from old: ContentIndex,
        base: Digest,
        to version: StoredIndex,
        in store: Directory
    ) throws(PackagingError) -> IndexedPatchWriter {
        let indexDelta = try PackagingError.wrapping { () throws(FileError) in
            try StoredCompanionDelta.forPatch(to: version, from: old, base: base, in: store)
        }
        let patches = PatchWriter(
            from: old,
            base: base,
            to: version,
            width: width,
            partSize: patchPartSize,
            level: patchLevel
        )
        return IndexedPatchWriter(patches, indexDelta: indexDelta)
    }

    /// Writes a patch if it makes the update smaller than the set that is there.
    private func replaceSet(
        by writer: IndexedPatchWriter,
        in store: Directory,
        updating update: inout BaseUpdate
    ) async throws(PackagingError) -> PackIndex.Patch? {
        let patch: PackIndex.Patch?
        (update.patch, patch) = try await writer.write(insteadOf: update.cost, in: store)
        guard let patch else { return nil }
        update.cost = update.plainCost
        update.cost.count(patch)
        return patch
    }

    /// Writes the set or the patch, whichever makes the update smaller; neither if the update does not become smaller.
    private func keepBetter(
        of set: DeltaSet?,
        from draft: UnpublishedDeltaSet?,
        costing setCost: UpdateCost?,
        and writer: IndexedPatchWriter?,
        in store: Directory,
        updating update: inout BaseUpdate
    ) async throws(PackagingError) -> (PackIndex.DeltaFrames?, PackIndex.Patch?) {
        let isSetSmaller = setCost.map { $0.content < update.cost.content } ?? false
        var patch: PackIndex.Patch?
        if let writer {
            let other = isSetSmaller ? setCost ?? update.cost : update.cost
            (update.patch, patch) = try await writer.write(insteadOf: other, in: store)
        }
        if let patch { update.cost.count(patch) }
        guard let draft, let set, let setCost else { return (nil, patch) }
        guard patch == nil, isSetSmaller else {
            update.set = .useless(draft.size(of: set))
            return (nil, patch)
        }
        let frames = try PackagingError.wrapping { () throws(FileError) in
            try draft.write(set, in: store)
        }
        update.set = .made(frames.size)
        update.cost = setCost
        return (frames, nil)
    }

    /// Creates the frames of a set unless they exist already; `nil` if there are none.
    private func nonEmpty(
        _ unpublished: UnpublishedDeltaSet?,
        to version: StoredIndex,
        from old: ContentIndex,
        in store: Directory
    ) async throws(PackagingError) -> UnpublishedDeltaSet? {
        if let unpublished { return unpublished.isSet ? unpublished : nil }
        let bundles = try PackagingError.wrapping { () throws(FileError) in
            try store.makeDirectory(FilePath(StoreObjectKind.bundle.folder))
        }
        let maker = DeltaFrameMaker(
            from: StoredFrames(index: old, bundles: bundles),
            to: StoredFrames(index: version.index, bundles: bundles),
            width: width,
            report: report
        )
        let made = try await maker.makeFrames()
        return made.isSet ? made : nil
    }

    private static func digest(of index: ContentIndex) -> Digest { Digest(of: index.encoded()) }

    /// Throws if the store lacks a bundle of a version.
    static func checkBundles(
        of index: ContentIndex,
        in store: Directory
    ) throws(PackagingError) {
        let missing = try PackagingError.wrapping { () throws(FileError) in
            try index.missingBundles(in: store)
        }
        if let first = missing.first { throw .base(digest(of: index), .missingBundle(first)) }
    }
}

extension BaseUpdate {
    /// Creates an update without a delta set and without a patch.
    fileprivate init(from base: Digest, by writer: DeltaSetWriter, costing cost: UpdateCost) {
        self.init(
            base: base,
            set: writer.makesSets ? .empty : .disabled,
            patch: writer.makesPatches ? .empty : .disabled,
            delta: nil,
            cost: cost,
            plainCost: cost
        )
    }
}

/// The delta of an index from an older one.
private struct IndexDelta {
    private let content: [UInt8]
    private let old: [UInt8]
    /// The digest of the older index.
    let base: Digest
    /// The size of the whole index in the store.
    private let wholeSize: Int
    private let name: FilePath.Component

    init(from old: ContentIndex, to version: StoredIndex) {
        content = version.index.encoded()
        self.old = old.encoded()
        base = Digest(of: self.old)
        wholeSize = Int(version.reference.size.rawValue)
        name = FilePath.Component(
            stringLiteral: "\(version.reference.contentDigest).from.\(base)"
        )
    }

    /// Returns the delta: the one in the store if it is valid, otherwise a new one.
    func bytes(in store: Directory) throws(FileError) -> [UInt8] {
        if let present = try present(in: store), restoresIndex(present) { return present }
        var compressor = FrameCompressor(level: 19)
        return compressor.compress(content.span, after: old.span)
    }

    /// Writes the delta unless it exists, and returns its reference for the manifest.
    func write(
        _ bytes: [UInt8],
        frames: PackIndex.DeltaFrames?,
        patch: PackIndex.Patch?,
        to store: Directory
    ) throws(FileError) -> PackIndex.Delta {
        if try present(in: store) != bytes {
            try store.makeDirectory("i").write(bytes, to: name, durably: true)
        }
        return PackIndex.Delta(
            base: base,
            url: "i/\(name)",
            size: ByteCount(bytes.count),
            digest: Digest(of: bytes),
            frames: frames,
            patch: patch
        )
    }

    private func present(in store: Directory) throws(FileError) -> [UInt8]? {
        guard let directory = try store.directory("i") else { return nil }
        // A delta that exists for its delta set may be slightly larger than the index.
        return try StoreObjects(directory: directory).bytes(of: name, limit: 2 * wholeSize + 1024)
    }

    /// Returns whether a delta restores the index from the older one.
    private func restoresIndex(_ delta: [UInt8]) -> Bool {
        var decompressor = FrameDecompressor()
        let made = try? decompressor.decompress(delta.span, after: old.span, to: content.count)
        return made == content
    }
}

extension ContentIndex {
    /// Returns whether a file of this version has the same content or name as one of another version.
    ///
    /// Ignores directories, links and empty files.
    fileprivate func isRelated(to other: ContentIndex) -> Bool {
        func files(_ index: ContentIndex) -> (names: Set<ArraySlice<UInt8>>, contents: Set<Digest>)
        {
            var names: Set<ArraySlice<UInt8>> = []
            var contents: Set<Digest> = []
            for position in index.entries.indices {
                guard let file = index.entries.file(at: position), file.size > 0 else { continue }
                let path = index.entries.pathBytes(at: position)
                names.insert(
                    path.suffix(
                        from: path.lastIndex(of: UInt8(ascii: "/")).map { $0 + 1 }
                            ?? path.startIndex
                    )
                )
                contents.insert(file.digest)
            }
            return (names, contents)
        }
        let (own, others) = (files(self), files(other))
        return !own.names.isDisjoint(with: others.names)
            || !own.contents.isDisjoint(with: others.contents)
    }
}

import StageDigest
import StageFrame
package import StageIndex
package import StageModel
package import StageSystem
package import SystemPackage

/// An indexed pack that was created from a recipe.
package struct IndexedPack: Equatable, Sendable {
    /// The name of the pack.
    package var pack: PackID
    /// The condition under which the pack is downloaded.
    package var policy: DownloadPolicy
    /// The publisher's data for the application, as JSON text.
    package var userInfo: String?
    /// The index.
    package var index: ContentIndex
    /// The reference to the index for the manifest; URLs are relative to the store.
    package var reference: PackIndex
    /// The archive of the same files, with a URL relative to the store; `nil` without one.
    package var archive: PackArchive?
    /// The stored bytes that no earlier version has.
    ///
    /// With ``repackedBytes``, the upload size of bundles.
    package var newBytes: ByteCount
    /// The stored bytes that were copied from bundles of earlier versions, which the index does not name any more.
    ///
    /// Clients that have them do not download them again.
    package var repackedBytes: ByteCount
    /// The bundles of earlier versions that this one needs and the store does not have.
    package var missingBundles: [Digest]
    /// The bundles of the previous version that the store has with other bytes than their names say.
    ///
    /// This version does not name them: the frames that it needs of them are in new bundles. A damaged bundle of which all
    /// frames are needed is written again, and is not in this list.
    package var damagedBundles: [Digest]
    /// The older versions with smaller updates, in the order of the writer's versions.
    package var updates: [BaseUpdate]

    /// Returns the pack's entry for a manifest whose base URL is the store.
    package func pack(version: Int) -> Pack {
        var offered = Pack(
            id: pack,
            version: version,
            policy: policy,
            archive: archive,
            index: reference,
            installedSize: index.installedSize,
            fileCount: index.fileCount
        )
        offered.directoryCount = index.directoryCount
        offered.userInfo = userInfo
        return offered
    }
}

/// Creates an indexed pack from a recipe: bundles `b/<SHA-256>`, the index `i/<SHA-256>`, an archive of the
/// same files in `a/`, and from each older version a delta set `d/<SHA-256>` or a patch in `p/`, in a store, a
/// directory that any web server can serve.
///
/// Writes objects under temporary names, syncs them, and then renames them; never modifies or replaces
/// existing objects unless they are damaged. Equal files, equal previous indexes and their bundles give equal bytes, and
/// unchanged files keep the previous index.
package struct IndexedPackWriter: Sendable {
    /// The compression level of frames, 1 to 22; delta sets and index deltas have fixed levels.
    package var level = 19
    /// The compression level of the archive, 1 to 22; `nil` uses ``level``, and the fastest level for incompressible files.
    package var archiveLevel: Int?
    /// The number of processors to use.
    package var width: Int
    /// The index of the previous version; empty if there is none.
    package var previous = ContentIndex()
    /// The indexes of versions before the previous one, from which updates are also made smaller.
    ///
    /// Their content is not reused. Their bundles must be in the store.
    package var older: [ContentIndex] = []
    /// The files of the indexes of ``previous`` and ``older``, which must still exist once the store is locked: without the
    /// lock, a garbage collection may have removed a version after it was read.
    package var baseFiles: [FilePath] = []
    /// Indicates whether delta sets from older versions are created; for the previous version, as far as its
    /// bundles are in the store.
    package var makesDeltas = true
    /// Indicates whether patches from older versions are created, if delta sets are.
    package var makesPatches = true
    /// The maximum number of bytes of each version in one part of a patch: what clients keep in memory, twice; 1 to 128
    /// MiB.
    package var patchPartSize = ManifestLimits.windowSize
    /// The compression level of new patches, 1 to 22; `nil` to choose level 12 or 19 for each part by its size and the
    /// expected saving.
    ///
    /// Patches that are in the store already stay, whatever their level. Levels above 19 take far more memory.
    package var patchLevel: Int?
    /// Indicates whether an archive of the files is created if it saves a first installation more than a fiftieth.
    package var makesArchive = true
    /// Called with the bytes of files processed so far.
    package var report: @Sendable (ByteCount) -> Void = { _ in }
    /// Called after all files are processed, with the bytes compared with the previous version so far and in
    /// all.
    package var reportComparison: @Sendable (_ done: ByteCount, _ total: ByteCount) -> Void
    /// Called with the progress of the trial compression, and then of writing the archive: the bytes of files that were read,
    /// and the bytes of the archive that were written.
    package var reportArchive: @Sendable (PackagingProgress) -> Void

    /// Files below this size share frames with others.
    static let smallSize = Int64(64 << 10)
    /// The maximum number of bytes of a shared frame.
    static let clusterSize = 256 << 10

    /// Creates a writer that uses `width` processors.
    package init(width: Int) {
        self.width = max(width, 1)
        reportComparison = { _, _ in }
        reportArchive = { _ in }
    }

    /// Writes the missing objects of a pack.
    ///
    /// Leaves only complete objects on failure or cancellation; after ``PackagingError/incompleteUpdates(index:_:)``, the
    /// version can be offered, and ``DeltaSetWriter`` writes the missing updates. When killed, it leaves hidden files, which
    /// the next run that is alone in the store removes.
    package func write(
        _ evaluation: RecipeEvaluation,
        to store: Directory
    ) async throws(PackagingError) -> IndexedPack {
        let bundles = try PackagingError.wrapping { () throws(FileError) in
            try store.makeDirectory(FilePath(StoreObjectKind.bundle.folder))
        }
        let lock = try await StoreLock.forWriting(in: store)
        for file in baseFiles {
            _ = try PackagingError.wrapping { () throws(FileError) in
                try File.open(readingRegular: file)
            }
        }
        let pack = try await write(evaluation, bundles: bundles, store: store)
        _ = consume lock
        return pack
    }

    private func write(
        _ evaluation: RecipeEvaluation,
        bundles: Directory,
        store: Directory
    ) async throws(PackagingError) -> IndexedPack {
        let damaged: Set<Int>
        do throws(FileError) {
            damaged = try await previous.damagedBundles(in: store, width: width)
        } catch {
            throw Task.isCancelled ? .cancelled : .file(error)
        }
        if makesDeltas {
            for base in older { try DeltaSetWriter.checkBundles(of: base, in: store) }
        }
        var version = try await makeFrames(of: evaluation, damaged: damaged, bundles: bundles)
        if damaged.isEmpty { version.keep(previous) }
        let deltas = try await makeDeltas(to: version.frames)
        if let deltas { try version.putLast(deltas.positions) }
        if version.index != previous { try version.repackBundles() }
        let objects = IndexObjects(of: version.index)
        try objects.checkLimits()
        let archive = try await writeArchive(evaluation, of: objects, to: store)
        if Task.isCancelled { throw .cancelled }
        var stored: StoredIndex
        do throws(FileError) {
            try version.newBundles.publish()
            stored = try writeIndex(objects, archive: archive, to: store)
            // Before the updates: the version is complete if the disk is full then.
            try await record(evaluation.recipe, of: stored.reference, in: store)
        } catch {
            throw .file(error)
        }
        let updates: [BaseUpdate]
        do throws(PackagingError) {
            updates = try await shortenUpdates(to: stored, with: deltas, in: store)
        } catch {
            guard case .file(let error) = error else { throw error }
            let index = store.path.pushing(FilePath(stored.reference.url))
            throw .incompleteUpdates(index: index, error)
        }
        stored.reference.deltas = updates.compactMap(\.delta)
        let missing = try PackagingError.wrapping { () throws(FileError) in
            try version.index.missingBundles(in: store)
        }
        return IndexedPack(
            pack: evaluation.recipe.pack,
            policy: evaluation.recipe.policy,
            userInfo: evaluation.recipe.userInfo,
            index: version.index,
            reference: stored.reference,
            archive: archive,
            newBytes: ByteCount(version.newBytes),
            repackedBytes: ByteCount(version.repackedBytes),
            missingBundles: missing,
            damagedBundles: damaged.sorted().map { previous.bundles[$0] }
                .filter { !version.index.bundles.contains($0) }.map(\.digest),
            updates: updates
        )
    }

    /// Creates a version with new frames in temporary bundles, and without frames in the bundles `damaged` of the previous one.
    private func makeFrames(
        of evaluation: RecipeEvaluation,
        damaged: Set<Int>,
        bundles: Directory
    ) async throws(PackagingError) -> UnpublishedVersion {
        var run = IndexedPackRun(
            writer: self,
            packer: FramePacker(
                level: level,
                width: width,
                previous: previous,
                damaged: damaged,
                writer: BundleWriter(directory: bundles)
            ),
            damaged: damaged,
            count: evaluation.entries.count
        )
        try run.findSparseFrames(in: evaluation.entries)
        for entry in evaluation.entries {
            if Task.isCancelled { throw PackagingError.cancelled }
            try await run.add(entry)
        }
        return try await Self.finish(run)
    }

    /// Writes the archive, unless it is disabled or saves too little.
    private func writeArchive(
        _ evaluation: RecipeEvaluation,
        of objects: IndexObjects,
        to store: Directory
    ) async throws(PackagingError) -> PackArchive? {
        guard makesArchive else { return nil }
        let archive = SolidArchive(
            level: archiveLevel ?? level,
            triesFast: archiveLevel == nil,
            width: width,
            report: reportArchive
        )
        return try await archive.write(evaluation, of: objects, to: store)
    }

    /// Writes the index deltas and delta sets from the older versions; `unpublished` contains the frames of the set
    /// from the previous version.
    private func shortenUpdates(
        to stored: StoredIndex,
        with unpublished: UnpublishedDeltaSet?,
        in store: Directory
    ) async throws(PackagingError) -> [BaseUpdate] {
        var deltas = DeltaSetWriter(width: width)
        deltas.report = reportComparison
        deltas.makesSets = makesDeltas
        deltas.makesPatches = makesDeltas && makesPatches
        deltas.patchPartSize = patchPartSize
        deltas.patchLevel = patchLevel
        var bases: [(index: ContentIndex, unpublished: UnpublishedDeltaSet?)] = [
            (previous, unpublished ?? UnpublishedDeltaSet())
        ]
        bases += older.map { ($0, makesDeltas ? nil : UnpublishedDeltaSet()) }
        var updates: [BaseUpdate] = []
        for base in bases where !base.index.entries.isEmpty && base.index != stored.index {
            updates.append(
                try await deltas.write(
                    to: stored,
                    from: base.index,
                    unpublished: base.unpublished,
                    in: store
                )
            )
        }
        let named = updates.compactMap(\.delta)
        guard !named.isEmpty else { return updates }
        try PackagingError.wrapping { () throws(FileError) in
            // Marks existing sets too: no manifest may have named them yet.
            try OfferMark.write(stored, deltas: named, to: store)
        }
        return updates
    }

    /// Adds a recipe to the record of an index, which packs of equal content share.
    ///
    /// Other processes that hold the store's lock, too, do so one after the other.
    private func record(
        _ recipe: Recipe,
        of index: PackIndex,
        in store: Directory
    ) async throws(FileError) {
        let lock = try await StoreLock.forRecords(in: store)
        try PackRecord(of: index.digest, from: recipe)
            .write(beside: store.path.pushing(FilePath(index.url)))
        _ = consume lock
    }

    private static func finish(
        _ run: consuming IndexedPackRun
    ) async throws(PackagingError) -> UnpublishedVersion {
        do throws(FileError) {
            return try await run.finish()
        } catch {
            throw Task.isCancelled ? .cancelled : .file(error)
        }
    }

    /// Creates delta frames from the previous version; `nil` if they are disabled or save too little.
    private func makeDeltas(
        to new: StoredFrames
    ) async throws(PackagingError) -> UnpublishedDeltaSet? {
        guard makesDeltas, !previous.entries.isEmpty, new.index != previous else { return nil }
        let old = StoredFrames(index: previous, bundles: new.bundles)
        let maker = DeltaFrameMaker(from: old, to: new, width: width, report: reportComparison)
        let unpublished = try await maker.makeFrames()
        return unpublished.isSet ? unpublished : nil
    }

    /// Writes the index, and returns it with the delta sets of the store.
    private func writeIndex(
        _ objects: IndexObjects,
        archive: PackArchive?,
        to store: Directory
    ) throws(FileError) -> StoredIndex {
        let directory = try store.makeDirectory("i")
        let delta = archive == nil ? nil : objects.fileTableDelta
        let name = Digest(of: objects.stored)
        // Written before the index, with which the version can be offered.
        try OfferMark.write(
            objects.index,
            named: name,
            archive: archive,
            fileTableDelta: delta?.reference,
            to: store
        )
        try delta?.write(to: directory)
        try StoreObjects(directory: directory).write(objects.stored, digest: name)
        return try StoredIndex(
            objects.index,
            contentSize: objects.contentSize,
            contentDigest: objects.contentDigest,
            size: ByteCount(objects.stored.count),
            digest: name,
            archive: archive,
            in: store
        )
    }
}

import StageDigest
import StageFrame
public import StageIndex
public import StageModel
public import StageSystem
import SystemPackage

/// An indexed pack that was made of a recipe.
public struct IndexedPack: Equatable, Sendable {
    /// The name of the pack.
    public var pack: PackID
    /// When the pack is fetched.
    public var policy: DownloadPolicy
    /// Whatever the publisher wants to tell the application, as JSON text.
    public var userInfo: String?
    /// The index.
    public var index: ContentIndex
    /// What a manifest says of it; the URLs are relative to the store.
    public var reference: PackIndex
    /// The archive of the same files, with a URL relative to the store; `nil` without one.
    public var archive: PackArchive?
    /// The bytes that no earlier version had, as they are stored: what is to be uploaded beside the
    /// index.
    public var newBytes: ByteCount
    /// The older versions that updates are shortened from, in the order of the writer's.
    public var updates: [BaseUpdate]

    /// The pack as a manifest offers it that has the store for its base URL.
    public func pack(version: Int) -> Pack {
        var offered = Pack(
            id: pack,
            version: version,
            policy: policy,
            archive: archive,
            index: reference,
            installedSize: index.installedSize,
            fileCount: index.fileCount
        )
        offered.userInfo = userInfo
        return offered
    }
}

/// Makes an indexed pack of what a recipe selects: bundles `b/<SHA-256>`, the index `i/<SHA-256>`, an archive of
/// the same files in `a/` and, where there are older versions, a delta set `d/<SHA-256>` from each, in a store, which
/// is a directory that any web server can serve.
///
/// Objects are written under names that nobody asks for, made durable, and then renamed; what there is
/// is never changed or replaced, unless it is damaged. The same files and the same previous index give the
/// same bytes, and the files of the previous version its index.
public struct IndexedPackWriter: Sendable {
    /// The level of compression, 1 to 22.
    public var level = 19
    /// How many processors are used.
    public var width: Int
    /// The index of the version before; an empty one for none.
    public var previous = ContentIndex()
    /// The indexes of versions before that one, from which updates are shortened, too.
    ///
    /// Content is not reused from them. Their bundles have to be in the store.
    public var older: [ContentIndex] = []
    /// Whether frames are also made as differences from the older versions, as far as the bundles of the
    /// previous one are in the store.
    public var makesDeltas = true
    /// Whether the files are also made one archive, where that is smaller than their frames.
    public var makesArchive = true
    /// Told how many bytes of files are done.
    public var report: @Sendable (ByteCount) -> Void = { _ in }
    /// Told, when all files are done, how many bytes of what is new, of how many, have been compared with
    /// the previous version.
    public var reportComparison: @Sendable (_ done: ByteCount, _ total: ByteCount) -> Void
    /// Told, at last, how many bytes of files are in the archive.
    public var reportArchive: @Sendable (ByteCount) -> Void

    /// Files under this size are gathered with others into frames.
    static let smallSize = Int64(64 << 10)
    /// The most bytes of a frame of gathered files.
    static let clusterSize = 256 << 10

    /// Creates a writer that uses so many processors.
    public init(width: Int) {
        self.width = max(width, 1)
        reportComparison = { _, _ in }
        reportArchive = { _ in }
    }

    /// Writes the objects of a pack that are not there yet.
    ///
    /// Nothing but whole objects is left when it fails or its task is cancelled. Killed, it leaves hidden files,
    /// which the next run removes that is alone in the store.
    public func write(
        _ evaluation: RecipeEvaluation,
        to store: Directory
    ) async throws(PackagingError) -> IndexedPack {
        let bundles = try PackagingError.wrapping { () throws(FileError) in
            try store.makeDirectory(FilePath(StoreDraft.bundle.folder))
        }
        let lock: StoreLock
        do throws(FileError) {
            lock = try await StoreLock(store)
        } catch {
            throw .file(error)
        }
        let pack = try await write(evaluation, bundles, store)
        _ = consume lock
        return pack
    }

    private func write(
        _ evaluation: RecipeEvaluation,
        _ bundles: Directory,
        _ store: Directory
    ) async throws(PackagingError) -> IndexedPack {
        var run = IndexedPackRun(
            writer: self,
            packer: FramePacker(
                level: level,
                width: width,
                previous: previous,
                writer: BundleWriter(directory: bundles)
            )
        )
        if makesDeltas {
            for base in older { try DeltaSetWriter.checkBundles(of: base, in: store) }
        }
        try run.survey(evaluation.entries)
        for entry in evaluation.entries {
            if Task.isCancelled { throw PackagingError.cancelled }
            try await run.add(entry)
        }
        var version = try await Self.finish(run)
        version.keep(previous)
        let deltas = try await makeDeltas(to: version.frames)
        if let deltas { try version.putLast(deltas.positions) }
        let archive =
            makesArchive
            ? try await SolidArchive(level: level, width: width, report: reportArchive)
                .write(evaluation, of: version.index, to: store) : nil
        var stored: StoredIndex
        do throws(FileError) {
            try version.drafts.publish()
            stored = try writeIndex(version.index, archive, to: store)
        } catch {
            throw .file(error)
        }
        let updates = try await shortenUpdates(to: stored, with: deltas, in: store)
        stored.reference.deltas = updates.compactMap(\.delta)
        return IndexedPack(
            pack: evaluation.recipe.pack,
            policy: evaluation.recipe.policy,
            userInfo: evaluation.recipe.userInfo,
            index: version.index,
            reference: stored.reference,
            archive: archive,
            newBytes: ByteCount(version.newBytes),
            updates: updates
        )
    }

    /// Writes the deltas of the index and the delta sets from the older versions; `draft` has the frames of the
    /// set from the previous one.
    private func shortenUpdates(
        to stored: StoredIndex,
        with draft: DeltaDraft?,
        in store: Directory
    ) async throws(PackagingError) -> [BaseUpdate] {
        var deltas = DeltaSetWriter(width: width)
        deltas.report = reportComparison
        var bases: [(index: ContentIndex, draft: DeltaDraft?)] = [
            (previous, draft ?? DeltaDraft())
        ]
        bases += older.map { ($0, makesDeltas ? nil : DeltaDraft()) }
        var updates: [BaseUpdate] = []
        for base in bases where !base.index.entries.isEmpty && base.index != stored.index {
            updates.append(
                try await deltas.write(to: stored, from: base.index, base.draft, in: store)
            )
        }
        let named = updates.compactMap(\.delta)
        guard !named.isEmpty else { return updates }
        try PackagingError.wrapping { () throws(FileError) in
            // A set that was there may have been without use.
            try StoreMark.write(stored, named, to: store)
        }
        return updates
    }

    private static func finish(
        _ run: consuming IndexedPackRun
    ) async throws(PackagingError) -> DraftVersion {
        do throws(FileError) {
            return try await run.finish()
        } catch {
            throw .file(error)
        }
    }

    /// Makes frames as differences from the previous version; `nil` if none are wanted, or worth it.
    private func makeDeltas(to new: StoredFrames) async throws(PackagingError) -> DeltaDraft? {
        guard makesDeltas, !previous.entries.isEmpty, new.index != previous else { return nil }
        let old = StoredFrames(index: previous, bundles: new.bundles)
        let maker = DeltaFrameMaker(from: old, to: new, width: width, report: reportComparison)
        let draft = try await maker.makeFrames()
        return draft.isSet ? draft : nil
    }

    /// Writes the index, and returns it with the delta sets that the store has for it.
    private func writeIndex(
        _ index: ContentIndex,
        _ archive: PackArchive?,
        to store: Directory
    ) throws(FileError) -> StoredIndex {
        let directory = try store.makeDirectory("i")
        var compressor = FrameCompressor(level: 19)
        let content = index.encoded()
        let stored = compressor.compress(content.span)
        let name = Digest(of: stored)
        // Before the index is there by which the version can be offered.
        try StoreMark.write(index, named: name, archive, to: store)
        try StoreObjects(directory: directory).write(stored, digest: name)
        return try StoredIndex(
            index,
            contentSize: ByteCount(content.count),
            contentDigest: Digest(of: content),
            size: ByteCount(stored.count),
            digest: name,
            archive: archive,
            in: store
        )
    }
}

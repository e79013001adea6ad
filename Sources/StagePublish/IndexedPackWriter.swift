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
    /// The bytes that no earlier version had, as they are stored: what is to be uploaded beside the
    /// index.
    public var newBytes: ByteCount

    /// The pack as a manifest offers it that has the store for its base URL.
    public func pack(version: Int) -> Pack {
        var offered = Pack(
            id: pack,
            version: version,
            policy: policy,
            archive: nil,
            index: reference,
            installedSize: index.installedSize,
            fileCount: index.fileCount
        )
        offered.userInfo = userInfo
        return offered
    }
}

/// Makes an indexed pack of what a recipe selects: bundles `b/<SHA-256>`, the index `i/<SHA-256>` and, where
/// there is a previous version, a delta set `d/<SHA-256>`, in a store, which is a directory that any web
/// server can serve.
///
/// Objects are written under names that nobody asks for, made durable, and then renamed; what there is
/// is never changed. The same files and the same previous index give the same bytes.
public struct IndexedPackWriter: Sendable {
    /// The level of compression, 1 to 22.
    public var level = 19
    /// How many processors are used.
    public var width: Int
    /// The index of the version before; an empty one for none.
    public var previous = ContentIndex()
    /// Whether frames are also made as differences from the previous version, as far as its bundles are
    /// in the store.
    public var makesDeltas = true
    /// Told how many bytes of files are done.
    public var report: @Sendable (ByteCount) -> Void = { _ in }

    /// Files under this size are gathered with others into frames.
    static let smallSize = Int64(64 << 10)
    /// The most bytes of a frame of gathered files.
    static let clusterSize = 256 << 10

    /// Creates a writer that uses so many processors.
    public init(width: Int) { self.width = max(width, 1) }

    /// Writes the objects of a pack that are not there yet.
    ///
    /// Nothing but whole objects is left when it fails or its task is cancelled.
    public func write(
        _ evaluation: RecipeEvaluation,
        to store: Directory
    ) async throws(PackagingError) -> IndexedPack {
        let bundles: Directory
        do throws(FileError) {
            bundles = try store.makeDirectory("b")
        } catch {
            throw .file(error)
        }
        var run = IndexedPackRun(
            writer: self,
            packer: FramePacker(
                level: level,
                width: width,
                previous: previous,
                writer: BundleWriter(directory: bundles, after: previous.bundles)
            )
        )
        do throws(PackagingError) {
            try run.survey(evaluation.entries)
            for entry in evaluation.entries {
                if Task.isCancelled { throw PackagingError.cancelled }
                try await run.add(entry)
            }
        } catch {
            run.abandon()
            throw error
        }
        let (index, newBytes) = try await Self.finish(run)
        let deltas = try await writeDeltas(to: index, bundles, store)
        return try PackagingError.wrapping { () throws(FileError) in
            try bundles.synchronize()
            return IndexedPack(
                pack: evaluation.recipe.pack,
                policy: evaluation.recipe.policy,
                userInfo: evaluation.recipe.userInfo,
                index: index,
                reference: try writeIndex(index, deltas, to: store),
                newBytes: ByteCount(newBytes)
            )
        }
    }

    private static func finish(
        _ run: consuming IndexedPackRun
    ) async throws(PackagingError) -> (ContentIndex, Int64) {
        do throws(FileError) {
            return try await run.finish()
        } catch {
            throw .file(error)
        }
    }

    /// Writes the delta set from the previous version; `nil` if none is wanted, or worth it.
    private func writeDeltas(
        to index: ContentIndex,
        _ bundles: Directory,
        _ store: Directory
    ) async throws(PackagingError) -> PackIndex.DeltaFrames? {
        guard makesDeltas, !previous.entries.isEmpty else { return nil }
        let writer = DeltaSetWriter(
            from: previous,
            to: index,
            in: bundles,
            width: width
        )
        let set = DeltaSet(
            new: Digest(of: index.encoded()),
            old: Digest(of: previous.encoded())
        )
        return try await writer.write(set, to: store)
    }

    /// Writes the index, and the delta from the previous one.
    private func writeIndex(
        _ index: ContentIndex,
        _ frames: PackIndex.DeltaFrames?,
        to store: Directory
    ) throws(FileError) -> PackIndex {
        let directory = try store.makeDirectory("i")
        var compressor = FrameCompressor(level: 19)
        let content = index.encoded()
        let digest = Digest(of: content)
        let stored = compressor.compress(content.span)
        let name = Digest(of: stored)
        try directory.write(stored, to: FilePath.Component(stringLiteral: "\(name)"), durably: true)
        var reference = PackIndex(
            url: "i/\(name)",
            size: ByteCount(stored.count),
            digest: name,
            contentSize: ByteCount(content.count),
            contentDigest: digest,
            bundleSize: index.storedSize
        )
        guard !previous.entries.isEmpty else { return reference }
        let old = previous.encoded()
        let base = Digest(of: old)
        let delta = compressor.compress(content.span, after: old.span)
        // A delta set is found by the delta of the index, even by one that saves nothing by itself.
        guard base != digest, delta.count < stored.count || frames != nil else { return reference }
        let deltaName = "\(digest).from.\(base)"
        try directory.write(delta, to: FilePath.Component(stringLiteral: deltaName), durably: true)
        reference.deltas = [
            PackIndex.Delta(
                base: base,
                url: "i/\(deltaName)",
                size: ByteCount(delta.count),
                digest: Digest(of: delta),
                frames: frames
            )
        ]
        return reference
    }
}

import StageArchive
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// Creates the patch between two versions whose bundles are in a store: what the newer one has and the older one
/// lacks, as one Zstandard frame after what the older one has and the newer one lacks.
///
/// It spans whole versions, so that it finds more than a delta set, whose frames have small windows and are
/// compressed one by one; its decoder needs memory for all of both.
struct PatchWriter: Sendable {
    private let old: ContentIndex
    /// The digest of the encoded older index.
    private let base: Digest
    private let version: StoredIndex

    /// A patch with fewer bytes than any other way is kept only if it saves this share, as a divisor: a client can
    /// continue by objects what it began, and needs less memory for these.
    private static let leastSaving = Int64(16)
    /// The share of a fast compression's size, as a divisor, that a slow one is assumed to reach at best.
    private static let bestGain = 3
    /// The level of patches: the highest one without larger tables.
    private static let level = 19

    init(from old: ContentIndex, base: Digest, to version: StoredIndex) {
        self.old = old
        self.base = base
        self.version = version
    }

    /// Writes the patch, unless the update transfers about as little without it.
    ///
    /// - Parameters:
    ///   - other: The bytes that the content of the update transfers without a patch.
    ///   - store: The store with the bundles of both versions.
    /// - Returns: The outcome, and the patch's reference for the manifest if it was written.
    /// - Throws: ``PackagingError`` if the store cannot be read or written.
    func write(
        insteadOf other: ByteCount,
        in store: Directory
    ) async throws(PackagingError) -> (BaseUpdate.Outcome, PackIndex.Patch?) {
        try await withCancellableThread { cancellation throws(PackagingError) in
            try PackagingError.wrapping { () throws(FileError) in
                try write(insteadOf: other, in: store, cancellation: cancellation)
            }
        }
    }

    private func write(
        insteadOf other: ByteCount,
        in store: Directory,
        cancellation: Cancellation
    ) throws(FileError) -> (BaseUpdate.Outcome, PackIndex.Patch?) {
        let limit = other.rawValue - other.rawValue / Self.leastSaving
        guard let (prefix, content) = try content(in: store), !cancellation.isRequested else {
            return (.empty, nil)
        }
        var trial = FrameCompressor(level: 1, findsDistantRepeats: true)
        let quick = trial.compress(content.span, after: prefix.span).count
        guard quick / Self.bestGain < limit, !cancellation.isRequested else {
            return (.useless(ByteCount(quick)), nil)
        }
        var compressor = FrameCompressor(level: Self.level, findsDistantRepeats: true)
        let bytes = compressor.compress(content.span, after: prefix.span)
        guard bytes.count < limit else { return (.useless(ByteCount(bytes.count)), nil) }
        let patch = try publish(bytes, in: store)
        return (patch.map { .made($0.size) } ?? .empty, patch)
    }

    /// Reads what the versions do not share; `nil` if that is nothing, too much, or not in the store.
    private func content(
        in store: Directory
    ) throws(FileError) -> (prefix: [UInt8], content: [UInt8])? {
        let limit = ManifestLimits.windowSize.rawValue
        let new = PatchContent(of: version.index, notIn: old)
        let gone = PatchContent(of: old, notIn: version.index)
        guard new.size > 0, new.size <= limit, gone.size <= limit,
            let bundles = try store.directory(FilePath(StoreObjectKind.bundle.folder))
        else { return nil }
        var decompressor = FrameDecompressor()
        let prefix = try StoredFrames(index: old, bundles: bundles)
            .bytes(of: gone, decompressor: &decompressor)
        guard let prefix else { return nil }
        let content = try StoredFrames(index: version.index, bundles: bundles)
            .bytes(of: new, decompressor: &decompressor)
        return content.map { (prefix, $0) }
    }

    /// Writes the patch under its name, durably, unless it is there; `nil` for one that no client accepts.
    private func publish(
        _ bytes: [UInt8],
        in store: Directory
    ) throws(FileError) -> PackIndex.Patch? {
        let patch = StoredPatch.reference(
            head: Array(bytes.prefix(ZstandardHeader.maximumLength)),
            size: ByteCount(bytes.count),
            digest: Digest(of: bytes),
            to: version.reference.contentDigest,
            from: base
        )
        guard let patch, let name = FilePath(patch.url).lastComponent else { return nil }
        let folder = try store.makeDirectory(FilePath(StoreObjectKind.patch.folder))
        if try StoreObjects(directory: folder).bytes(of: name, limit: bytes.count) != bytes {
            try folder.write(bytes, to: name, durably: true)
        }
        return patch
    }
}

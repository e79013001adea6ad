import Logging
import StageContainer
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// The index of a pack, with the digest, the file count and the size that the manifest declares.
///
/// Only ``IndexFetch`` creates it, from bytes with that digest, so code that fills an area from an unverified
/// index does not compile.
struct VerifiedIndex: Sendable {
    let content: ContentIndex
    /// The number of directories, which decoding has counted: the property of the index reads all paths.
    let directoryCount: Int

    /// Decodes an index, within limits that follow from the file count and size in the manifest, and within the available
    /// memory.
    fileprivate init(_ bytes: IndexBytes, of pack: Pack) throws(StageError) {
        var bounds = pack.indexBounds
        bounds.memory = ByteCount(AvailableMemory.byteCount(countingSwap: true))
        var directories = 0
        do throws(IndexError) {
            content = try ContentIndex(
                decoding: bytes.bytes,
                within: bounds,
                directories: &directories
            )
        } catch {
            guard let needed = error.neededMemory else { throw error.stageError }
            throw StageError.noMemory(needed: needed, available: bounds.memory)
        }
        directoryCount = directories
        var figures = ContentFigures(
            fileCount: content.fileCount,
            size: content.installedSize
        )
        if pack.directoryCount != nil { figures.directoryCount = directories }
        try pack.declaredFigures.check(actual: figures)
    }
}

/// The bytes of an index, with the digest in the manifest.
private struct IndexBytes: Sendable {
    let bytes: [UInt8]

    init?(_ bytes: [UInt8], of reference: PackIndex) {
        guard Digest(of: bytes) == reference.contentDigest else { return nil }
        self.bytes = bytes
    }
}

/// Fetches the index of a pack, and makes the decisions that depend on it.
struct IndexFetch: Sendable {
    let fetching: PackFetching
    let reference: PackIndex

    private var pack: Pack { fetching.pack }

    /// Returns the index: from the staging area, from the staged generation, as a delta to the staged
    /// generation's, or from the manifest's server.
    ///
    /// - Parameters:
    ///   - area: The staging area, which stores the index; `nil` to write nothing.
    ///   - base: The staged generation.
    ///   - figures: Receives the number of bytes transferred and their source.
    /// - Returns: The index.
    /// - Throws: ``StageError`` if the index cannot be fetched or is not the one in the manifest.
    func index(
        in area: Directory?,
        base: IndexSource.Base?,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> VerifiedIndex {
        try checkSize()
        if let area, let bytes = try await bytes(in: area) { return try await decode(bytes) }
        if let base, let digest = base.contentMap.indexDigest,
            let bytes = try await updated(
                from: base.directory,
                digest: digest,
                countingIn: &figures
            )
        {
            return try await keep(bytes, in: area)
        }
        let stored = try await object(
            at: reference.url,
            size: reference.size,
            digest: reference.digest,
            countingIn: &figures
        )
        return try await keep(try decompress(stored), in: area)
    }

    /// Checks the size of the index in the manifest, before memory for it is allocated.
    ///
    /// Decoding the index compares the memory for its parts.
    ///
    /// - Throws: ``StageError/index(reason:)`` if an index of the pack's files cannot have that size;
    ///   ``StageError/noMemory(needed:available:)`` if its bytes do not fit in memory, compressed and decompressed.
    func checkSize() throws(StageError) {
        guard reference.contentSize.rawValue <= Int64(pack.indexBounds.byteCount) else {
            throw .index(
                reason:
                    "it is larger than one of \(pack.fileCount.quantity(of: "file")) can be"
            )
        }
        let needed = reference.size + reference.contentSize
        let available = ByteCount(AvailableMemory.byteCount(countingSwap: true))
        guard needed <= available else {
            throw .noMemory(needed: needed, available: available)
        }
    }

    /// Returns whether an area contains the index.
    func hasIndex(in area: Directory) async throws(StageError) -> Bool {
        try await bytes(in: area) != nil
    }

    /// Fetches a delta of the index that the content of the archive or of a patch completes; returns `nil` if no server
    /// sends it: then the index is fetched in another way.
    ///
    /// - Throws: ``StageError`` if the task is cancelled.
    func companionDelta(
        _ delta: PackIndex.CompanionDelta,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> [UInt8]? {
        try await objectIfServed(
            at: delta.url,
            size: delta.size,
            digest: delta.digest,
            countingIn: &figures,
            otherwise: "the delta that restores the index of a pack cannot be used"
        )
    }

    /// Restores the index without the digests of a patch's content by its delta from the staged generation's.
    ///
    /// - Parameters:
    ///   - delta: The delta, whose digest was verified.
    ///   - base: The directory of the staged generation.
    /// - Returns: The index; `nil` if the staged generation has no index, or the delta does not lead to one of the pack.
    /// - Throws: ``StageError`` if the older index cannot be read.
    func indexWithoutDigests(
        from delta: [UInt8],
        after base: Directory
    ) async throws(StageError) -> ContentIndex? {
        let pack = pack
        return try await StageError.blocking { () throws(FileError) -> ContentIndex? in
            guard let old = try ContainerLayout.indexBytes(in: base),
                let bytes = decompressed(delta, after: old)
            else { return nil }
            var bounds = pack.indexBounds
            bounds.memory = ByteCount(AvailableMemory.byteCount(countingSwap: true))
            return try? ContentIndex(decoding: bytes, within: bounds)
        }
    }

    /// Restores the omitted digests of an index, and writes the result to the staging area if it has the expected digest.
    ///
    /// - Parameters:
    ///   - index: The index with omitted digests.
    ///   - digests: The digests of the pieces, in their order.
    ///   - content: The content of the patch, from `index` and the older index.
    ///   - area: The staging area.
    /// - Returns: `false` if pieces have no digest, or the result does not have the expected digest.
    /// - Throws: ``StageError`` if the index cannot be written.
    func write(
        _ index: ContentIndex,
        restoredBy digests: [Digest],
        of content: PatchContent,
        to area: Directory
    ) async throws(StageError) -> Bool {
        guard digests.count == content.pieces.count else { return false }
        let reference = reference
        return try await StageError.blocking { () throws(FileError) -> Bool in
            // Returns the heap memory of the encoded index to the system.
            defer { HeapMemory.release() }
            let encoded = index.encoded(restoring: digests, of: content)
            guard let bytes = IndexBytes(encoded, of: reference) else { return false }
            try Self.store(bytes, in: area)
            return true
        }
    }

    /// Restores the index by its delta from a file table, and writes it to the staging area; returns `nil` if the
    /// result does not have the expected digest.
    func index(
        from delta: [UInt8],
        after table: [UInt8],
        in area: Directory
    ) async throws(StageError) -> VerifiedIndex? {
        guard let bytes = decompress(delta, after: table) else { return nil }
        return try await keep(bytes, in: area)
    }

    /// Decompresses an index, and verifies its digest.
    ///
    /// This function must not be asynchronous: the optimiser of Swift 6.3 would free the memory of the
    /// decompressor and the bytes in the wrong order, which crashes the process.
    private func decompress(_ stored: [UInt8]) throws(StageError) -> IndexBytes {
        var decompressor = FrameDecompressor()
        let bytes: [UInt8]
        do throws(FrameError) {
            let size = Int(reference.contentSize.rawValue)
            bytes = try decompressor.decompress(stored.span, to: size)
        } catch {
            throw error.stageError
        }
        guard let verified = IndexBytes(bytes, of: reference) else {
            throw .index(
                reason: "its decompressed content has another digest than the manifest names"
            )
        }
        return verified
    }

    /// Applies a delta to an older index or a file table; returns `nil` if the result does not have the expected digest.
    private func decompress(_ delta: [UInt8], after old: [UInt8]) -> IndexBytes? {
        decompressed(delta, after: old).flatMap { IndexBytes($0, of: reference) }
    }

    /// Decompresses a delta of the index to the size of the index; returns `nil` if that is impossible.
    private func decompressed(_ delta: [UInt8], after old: [UInt8]) -> [UInt8]? {
        var decompressor = FrameDecompressor()
        // The caller fetches the whole index instead.
        return try? decompressor.decompress(
            delta.span,
            after: old.span,
            to: Int(reference.contentSize.rawValue)
        )
    }

    /// Returns the index of the staged generation if it has the expected digest, or applies the published
    /// delta to it; returns `nil` if there is no delta, or if it cannot be fetched or does not restore the index.
    ///
    /// - Throws: ``StageError`` if the older index cannot be read, or the task is cancelled.
    private func updated(
        from base: Directory,
        digest: Digest,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> IndexBytes? {
        if digest == reference.contentDigest { return try await bytes(in: base) }
        // A delta larger than the index is published for its delta set only.
        guard let delta = reference.delta(from: digest),
            delta.size < reference.size,
            let old = try await StageError.blocking({ () throws(FileError) in
                try ContainerLayout.indexBytes(in: base)
            })
        else { return nil }
        let message: Logger.Message = "the delta of a pack's index cannot be used"
        let stored = try await objectIfServed(
            at: delta.url,
            size: delta.size,
            digest: delta.digest,
            countingIn: &figures,
            otherwise: message
        )
        guard let stored else { return nil }
        let bytes = decompress(stored, after: old)
        if bytes == nil {
            fetching.log("it does not restore the index that the manifest names", as: message)
        }
        return bytes
    }

    /// Reads the index in a directory; returns `nil` if it does not exist or has another digest.
    private func bytes(in directory: Directory) async throws(StageError) -> IndexBytes? {
        try await StageError.blocking { () throws(FileError) in
            try ContainerLayout.indexBytes(in: directory)
                .flatMap { IndexBytes($0, of: reference) }
        }
    }

    /// Writes the index to the staging area, if given, and decodes it.
    private func keep(
        _ bytes: IndexBytes,
        in area: Directory?
    ) async throws(StageError) -> VerifiedIndex {
        if let area {
            try await StageError.blocking { () throws(FileError) in
                try Self.store(bytes, in: area)
            }
        }
        return try await decode(bytes)
    }

    private static func store(_ bytes: IndexBytes, in area: Directory) throws(FileError) {
        try area.write(bytes.bytes, to: ContainerLayout.index, durably: false, exactly: .file)
    }

    private func decode(_ bytes: IndexBytes) async throws(StageError) -> VerifiedIndex {
        let pack = pack
        return try await withBlockingThread { () throws(StageError) in
            try VerifiedIndex(bytes, of: pack)
        }
    }

    /// Fetches a complete object of the manifest, as ``object(at:size:digest:countingIn:)`` does, if a server sends it.
    ///
    /// - Parameters:
    ///   - url: The URL of the object in the manifest.
    ///   - size: The size of the object.
    ///   - digest: The digest of the object.
    ///   - figures: Receives the number of bytes transferred and their source.
    ///   - message: Logged with the reason if no server sends the object.
    /// - Returns: The bytes; `nil` if no server sends the object.
    /// - Throws: ``StageError`` if the task is cancelled, or this machine is the cause.
    private func objectIfServed(
        at url: String,
        size: ByteCount,
        digest: Digest,
        countingIn figures: inout StagingFigures,
        otherwise message: Logger.Message
    ) async throws(StageError) -> [UInt8]? {
        do throws(StageError) {
            return try await object(at: url, size: size, digest: digest, countingIn: &figures)
        } catch {
            guard error.isOfSource else { throw error }
            fetching.log(error, as: message)
            return nil
        }
    }

    /// Fetches a complete object of the manifest, and verifies its size and digest.
    private func object(
        at url: String,
        size: ByteCount,
        digest: Digest,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> [UInt8] {
        let request = fetching.request(for: fetching.mirrors(of: url), limit: size)
        let document = try await fetching.fetch(request)
        figures.transferred = figures.transferred + ByteCount(document.bytes.count)
        guard ByteCount(document.bytes.count) == size else {
            throw .transfer(.wrongDigest(url: document.url))
        }
        let found = Digest(of: document.bytes)
        if let mismatch = DigestMismatch(expected: digest, found: found) {
            throw .transfer(.wrongDigest(url: document.url, mismatch))
        }
        figures.source = document.url
        return document.bytes
    }
}

extension IndexSource {
    /// The requests for the index and the decisions that depend on it.
    var indexFetch: IndexFetch { IndexFetch(fetching: work.fetching, reference: reference) }

    /// Returns the index: from the staging area, from the staged generation, or from the manifest's server.
    func index(
        for area: Directory,
        base: Base?,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> VerifiedIndex {
        try await indexFetch.index(in: area, base: base, countingIn: &figures)
    }

    /// Returns a request for an object of the pack, or a part of one.
    func request(for mirrors: [String], limit: ByteCount) -> FetchRequest {
        work.fetching.request(for: mirrors, limit: limit)
    }

    /// Performs a request.
    func fetch(_ request: FetchRequest) async throws(StageError) -> FetchedDocument {
        try await work.fetching.fetch(request)
    }
}

extension ContainerLayout {
    /// Reads the index in a directory; returns `nil` if it does not exist, is not a regular file or is too
    /// large.
    static func indexBytes(in directory: Directory) throws(FileError) -> [UInt8]? {
        do throws(FileError) {
            return try directory.bytes(of: FilePath(index), limit: IndexLimits.byteCount)
        } catch {
            guard error.isWrongKindOrSize else { throw error }
            return nil
        }
    }
}

extension Pack {
    /// The limits for decoding the index, from the manifest entry of the pack.
    fileprivate var indexBounds: IndexBounds {
        IndexBounds(fileCount: fileCount, installedSize: installedSize)
    }
}

import StageContainer
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// The index of a pack, with the digest, and with as many files and bytes, as the manifest names.
///
/// Made by ``IndexFetch/index(in:_:_:)`` alone, so filling an area from an index that is not verified
/// does not compile.
struct VerifiedIndex: Sendable {
    let content: ContentIndex

    /// Decodes an index, within the limits that follow from what the manifest declares of the pack.
    fileprivate init(_ bytes: IndexBytes, of pack: Pack) throws(StageError) {
        content = try StageError.wrapping { () throws(IndexError) in
            try ContentIndex(decoding: bytes.bytes, within: pack.indexBounds)
        }
        try ContentFigures(fileCount: pack.fileCount, size: pack.installedSize)
            .check(
                actual: ContentFigures(fileCount: content.fileCount, size: content.installedSize)
            )
    }
}

/// The bytes of an index, which have the digest that the manifest names.
private struct IndexBytes: Sendable {
    let bytes: [UInt8]

    init?(_ bytes: [UInt8], of reference: PackIndex) {
        guard Digest(of: bytes) == reference.contentDigest else { return nil }
        self.bytes = bytes
    }
}

/// Fetches the index of a pack, and what is decided by it.
struct IndexFetch: Sendable {
    let fetching: PackFetching
    let reference: PackIndex

    private var pack: Pack { fetching.pack }

    /// Returns the index: the one in the area, or else from the manifest's server, as a delta if there
    /// is one from the staged generation's.
    ///
    /// - Parameters:
    ///   - area: The staging area, which keeps the index; `nil` writes nothing.
    ///   - base: The staged generation.
    ///   - figures: Gets the bytes that are transferred.
    /// - Returns: The index.
    /// - Throws: ``StageError`` if it cannot be fetched, or is not the one that the manifest names.
    func index(
        in area: Directory?,
        _ base: IndexSource.Base?,
        _ figures: inout StagingFigures
    ) async throws(StageError) -> VerifiedIndex {
        guard reference.contentSize.rawValue <= Int64(pack.indexBounds.byteCount) else {
            throw .index(
                reason:
                    "it is larger than one of \(pack.fileCount.quantity(of: "file")) can be"
            )
        }
        if let area, let bytes = try await bytes(in: area) { return try await decode(bytes) }
        if let base, let digest = base.held.indexDigest,
            let bytes = try await updated(base.directory, digest, &figures)
        {
            return try await keep(bytes, in: area)
        }
        let stored = try await object(reference.url, reference.size, reference.digest, &figures)
        return try await keep(try decompress(stored), in: area)
    }

    /// Decompresses an index, and verifies it.
    ///
    /// Not in an asynchronous function: the optimiser of Swift 6.3 frees the memory of the two out of
    /// order there, which ends the process.
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
            throw .index(reason: "it is not what the manifest names when it is decompressed")
        }
        return verified
    }

    /// Makes an index from an older one and what changes it; `nil` where that does not lead to it.
    private func decompress(_ delta: [UInt8], after old: [UInt8]) -> IndexBytes? {
        var decompressor = FrameDecompressor()
        // Where it does not lead there the index is fetched whole.
        let bytes = try? decompressor.decompress(
            delta.span,
            after: old.span,
            to: Int(reference.contentSize.rawValue)
        )
        return bytes.flatMap { IndexBytes($0, of: reference) }
    }

    /// Takes the index from the staged generation, whose index has this digest, or makes it from that and
    /// what is published to change it; `nil` where there is nothing, or it does not lead there.
    private func updated(
        _ base: Directory,
        _ digest: Digest,
        _ figures: inout StagingFigures
    ) async throws(StageError) -> IndexBytes? {
        if digest == reference.contentDigest { return try await bytes(in: base) }
        // One that is larger than the index is there for the delta set that is found by it.
        guard let delta = reference.deltas.first(where: { $0.base == digest }),
            delta.size < reference.size,
            let old = try await StageError.blocking({ () throws(FileError) in
                try ContainerLayout.indexBytes(in: base)
            }),
            let stored = try? await object(delta.url, delta.size, delta.digest, &figures)
        else { return nil }
        return decompress(stored, after: old)
    }

    /// Reads the index beside the content; `nil` where there is none, or another one.
    private func bytes(in directory: Directory) async throws(StageError) -> IndexBytes? {
        try await StageError.blocking { () throws(FileError) in
            try ContainerLayout.indexBytes(in: directory)
                .flatMap { IndexBytes($0, of: reference) }
        }
    }

    /// Decodes an index after putting it into the area, if there is one.
    private func keep(
        _ bytes: IndexBytes,
        in area: Directory?
    ) async throws(StageError) -> VerifiedIndex {
        if let area {
            try await StageError.blocking { () throws(FileError) in
                let name = ContainerLayout.index
                try area.write(bytes.bytes, to: name, durably: false, exactly: .file)
            }
        }
        return try await decode(bytes)
    }

    private func decode(_ bytes: IndexBytes) async throws(StageError) -> VerifiedIndex {
        let pack = pack
        return try await withBlockingThread { () throws(StageError) in
            try VerifiedIndex(bytes, of: pack)
        }
    }

    /// Fetches an object of the manifest whole, and verifies it.
    private func object(
        _ url: String,
        _ size: ByteCount,
        _ digest: Digest,
        _ figures: inout StagingFigures
    ) async throws(StageError) -> [UInt8] {
        let request = fetching.request(for: fetching.mirrors(of: url), limit: size)
        let document = try await fetching.fetch(request)
        figures.transferred = figures.transferred + ByteCount(document.bytes.count)
        guard ByteCount(document.bytes.count) == size, Digest(of: document.bytes) == digest else {
            throw .transfer(.wrongDigest(url: document.url))
        }
        figures.source = document.url
        return document.bytes
    }
}

extension IndexSource {
    /// The requests for the index, and for what depends on it.
    var indexFetch: IndexFetch { IndexFetch(fetching: work.fetching, reference: reference) }

    /// Returns the index: the one in the area, or else from the manifest's server.
    func index(
        for area: Directory,
        _ base: Base?,
        _ figures: inout StagingFigures
    ) async throws(StageError) -> VerifiedIndex {
        try await indexFetch.index(in: area, base, &figures)
    }

    /// A request for an object of the pack, or a part of one.
    func request(for mirrors: [String], limit: ByteCount) -> FetchRequest {
        work.fetching.request(for: mirrors, limit: limit)
    }

    /// Performs a request.
    func fetch(_ request: FetchRequest) async throws(StageError) -> FetchedDocument {
        try await work.fetching.fetch(request)
    }
}

extension ContainerLayout {
    /// Reads the index beside the content; `nil` where there is none, or it cannot be one.
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
    /// The limits of the index, from what the manifest says of the pack.
    fileprivate var indexBounds: IndexBounds {
        IndexBounds(fileCount: fileCount, installedSize: installedSize)
    }
}

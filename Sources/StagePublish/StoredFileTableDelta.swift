import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// The index of a version as a delta from the file table of its archive: the part of the index that a client cannot derive
/// from the unpacked archive.
///
/// Its name in the store is `i/<SHA-256 of the delta>.of.<SHA-256 of the decompressed index>`.
struct StoredFileTableDelta {
    /// The reference for the manifest, with a URL relative to the store.
    let reference: PackIndex.CompanionDelta
    private let bytes: [UInt8]
    private let name: FilePath.Component

    /// Refers to the bytes of a delta of the index whose decompressed bytes have the digest `content`.
    fileprivate init(_ bytes: [UInt8], of content: Digest) {
        let digest = Digest(of: bytes)
        self.bytes = bytes
        name = Self.name(digest, of: content)
        reference = Self.reference(name, size: bytes.count, digest: digest)
    }

    /// Writes the delta to the directory of the indexes, unless it exists.
    func write(to directory: Directory) throws(FileError) {
        try StoreObjects(directory: directory)
            .write(bytes, digest: reference.digest, named: name)
    }

    /// Finds the smallest delta of an index in the directory of the indexes; `nil` if there is none.
    ///
    /// Skips damaged deltas: clients do not need them.
    static func find(
        of index: ContentIndex,
        named content: Digest,
        in directory: Directory
    ) throws(FileError) -> PackIndex.CompanionDelta? {
        var found: PackIndex.CompanionDelta?
        lazy var encoded = index.encoded()
        lazy var table = index.encodedFileTable()
        for entry in try directory.entries()
        where entry.kind == .file && entry.path.string.hasSuffix(".of.\(content)") {
            guard let file = try directory.file(reading: entry.path),
                try file.status().size <= IndexLimits.byteCount
            else { continue }
            let bytes = try file.readAll(limit: IndexLimits.byteCount)
            let digest = Digest(of: bytes)
            var decompressor = FrameDecompressor()
            guard name(digest, of: content) == entry.name,
                found.map({ (Int64(bytes.count), "i/\(entry.name)") < ($0.size.rawValue, $0.url) })
                    ?? true,
                let made = try? decompressor.decompress(
                    bytes.span,
                    after: table.span,
                    to: encoded.count
                ),
                made == encoded
            else { continue }
            found = reference(entry.name, size: bytes.count, digest: digest)
        }
        return found
    }

    private static func name(_ digest: Digest, of content: Digest) -> FilePath.Component {
        FilePath.Component(stringLiteral: "\(digest).of.\(content)")
    }

    private static func reference(
        _ name: FilePath.Component,
        size: Int,
        digest: Digest
    ) -> PackIndex.CompanionDelta {
        PackIndex.CompanionDelta(url: "i/\(name)", size: ByteCount(size), digest: digest)
    }
}

/// The objects of an index: compressed alone, and as a delta from the file table.
struct IndexObjects {
    let index: ContentIndex
    /// The compressed index.
    let stored: [UInt8]
    /// The delta from the file table; `nil` if it is not smaller than the compressed index.
    let fileTableDelta: StoredFileTableDelta?
    /// The size and the digest of the decompressed index.
    let contentSize: ByteCount
    let contentDigest: Digest

    init(of index: ContentIndex) {
        self.index = index
        var compressor = FrameCompressor(level: 19)
        let content = index.encoded()
        contentSize = ByteCount(content.count)
        contentDigest = Digest(of: content)
        stored = compressor.compress(content.span)
        let delta = compressor.compress(content.span, after: index.encodedFileTable().span)
        fileTableDelta =
            delta.count < stored.count ? StoredFileTableDelta(delta, of: contentDigest) : nil
    }

    /// Throws if clients would refuse the index for its size or for its references.
    func checkLimits() throws(PackagingError) {
        let pathBytes = index.entries.indices.reduce(0) {
            $0 + index.entries.pathBytes(at: $1).count
        }
        let limits = [
            (contentSize.rawValue, Int64(IndexLimits.byteCount), "bytes of the index"),
            (Int64(pathBytes), Int64(IndexLimits.pathByteCount), "bytes of all paths"),
            (
                index.storedSize.rawValue, ManifestLimits.archiveSize.rawValue,
                "compressed bytes of all files"
            ),
            (
                Int64(index.entries.referenceCount),
                Int64(IndexLimits.referenceCount(ofFrames: index.frames.count)),
                "references of all files to frames"
            ),
        ]
        for (size, limit, noun) in limits where size > limit {
            throw .overLimit(ValueError(expected: "at most \(limit) \(noun)", found: "\(size)"))
        }
    }

    /// The bytes of the index that a first installation by the archive does not download.
    var saving: Int64 {
        fileTableDelta.map { Int64(stored.count) - $0.reference.size.rawValue } ?? 0
    }
}

extension StoredIndex {
    /// Finds the delta of the index from the file table of its archive, if it has an archive.
    mutating func findFileTableDelta(in folder: FilePath) throws(FileError) {
        guard archive != nil else { return }
        reference.fileTableDelta = try StoredFileTableDelta.find(
            of: index,
            named: reference.contentDigest,
            in: Directory.open(folder.isEmpty ? "." : folder)
        )
    }
}

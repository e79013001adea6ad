import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// The objects of an index: compressed alone, and as a delta from the file table.
struct IndexObjects {
    let index: ContentIndex
    /// The compressed index.
    let stored: [UInt8]
    /// The delta from the file table; `nil` if it is not smaller than the compressed index.
    let fileTableDelta: StoredCompanionDelta?
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
            delta.count < stored.count ? StoredCompanionDelta(delta, of: contentDigest) : nil
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
        let index = self.index
        let found = try StoredCompanionDelta.find(
            of: reference.contentDigest,
            in: Directory.open(folder.isEmpty ? "." : folder)
        ) { index.isRestored(byFileTableDelta: $0) }
        reference.fileTableDelta = found?.reference
    }
}

extension ContentIndex {
    /// Returns whether the bytes of a delta restore this index from its file table.
    fileprivate func isRestored(byFileTableDelta delta: [UInt8]) -> Bool {
        let (content, table) = (encoded(), encodedFileTable())
        var decompressor = FrameDecompressor()
        let made = try? decompressor.decompress(delta.span, after: table.span, to: content.count)
        return made == content
    }
}

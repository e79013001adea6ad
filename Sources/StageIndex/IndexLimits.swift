public import StageModel

/// The limits of an index.
public enum IndexLimits {
    /// The most bytes of a frame's content: 1 MiB.
    public static let frameLength = 1 << 20
    /// The most bytes of a bundle: 256 MiB.
    public static let bundleSize = Int64(256 << 20)
    /// The most bytes of an index before compression: 256 MiB.
    public static let byteCount = 256 << 20
    /// The most bytes of all paths together after expanding shared prefixes: 256 MiB.
    public static let pathByteCount = 256 << 20
    /// Returns the most frames of a file: one for each started 4 KiB, a quarter of the smallest chunk of
    /// ``ContentChunker``, and one more.
    public static func frameCount(ofSize size: Int64) -> Int { Int(size >> 12) + 1 }
}

/// Bounds of an index, derived from the manifest, so that decoding takes memory in proportion to the declared
/// pack.
public struct IndexBounds: Hashable, Sendable {
    /// The number of files and symbolic links.
    public var fileCount: Int
    /// The sum of the sizes of the files.
    public var installedSize: ByteCount

    /// Creates bounds from the declared totals of a pack.
    public init(fileCount: Int, installedSize: ByteCount) {
        self.fileCount = fileCount
        self.installedSize = installedSize
    }

    /// The limits of the largest pack.
    public static let largest = IndexBounds(
        fileCount: ManifestLimits.fileCount,
        installedSize: ManifestLimits.installedSize
    )

    /// The most directories, including implied parents.
    public var directories: Int { ManifestLimits.directories(fileCount: fileCount) }
    /// The most entries: files, links, and empty directories.
    public var entries: Int { fileCount + directories }
    /// The most frames.
    public var frames: Int {
        fileCount + IndexLimits.frameCount(ofSize: installedSize.rawValue)
    }

    /// The most bytes of such an index before compression.
    public var byteCount: Int {
        // Each entry takes a path, a target, a digest and numbers; each frame two digests, numbers and a
        // bundle of its own.
        let (entries, areMany) = entries.multipliedReportingOverflow(by: 2176)
        let (frames, areMore) = frames.multipliedReportingOverflow(by: 160)
        guard !areMany, !areMore else { return IndexLimits.byteCount }
        return min(IndexLimits.byteCount, entries + frames + 64)
    }
}

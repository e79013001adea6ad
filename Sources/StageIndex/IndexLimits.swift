package import StageModel

/// The limits of an index.
package enum IndexLimits {
    /// The maximum number of bytes of a frame's content: 1 MiB.
    package static let frameLength = 1 << 20
    /// The maximum number of bytes of a bundle: 256 MiB.
    package static let bundleSize = Int64(256 << 20)
    /// The maximum number of bytes of an index before compression: 256 MiB.
    package static let byteCount = 256 << 20
    /// The maximum number of bytes of all paths together after expanding shared prefixes: 256 MiB.
    package static let pathByteCount = 256 << 20
    /// Returns the maximum number of frames of a file: one for each started 4 KiB, a quarter of the smallest chunk of
    /// ``ContentChunker``, and one more.
    package static func frameCount(ofSize size: Int64) -> Int { Int(size >> 12) + 1 }

    /// Returns the maximum number of references of all files to whole frames in an index with this number of frames: four for
    /// each frame and 1,048,576 more, and at most 8,388,608.
    ///
    /// A reference takes as few as one byte of an index, and 28 bytes of memory. Real packs stay far below: the files of a
    /// Linux system in `/usr` refer to each frame 1.1 times. 1,048,576 references are 64 GiB of content in frames of the
    /// usual 64 KiB, and 8,388,608 are 512 GiB, more than the frames of an index of ``byteCount`` bytes can have.
    package static func referenceCount(ofFrames count: Int) -> Int {
        min(4 * count + 1_048_576, 8_388_608)
    }
}

/// Bounds of an index, derived from the manifest, so that decoding takes memory in proportion to the declared
/// pack.
package struct IndexBounds: Hashable, Sendable {
    /// The number of files and symbolic links.
    package var fileCount: Int
    /// The sum of the sizes of the files.
    package var installedSize: ByteCount
    /// The memory in which the decoded index must fit, beside the encoded one.
    package var memory = ByteCount(Int64.max)

    /// Creates bounds from the declared totals of a pack.
    package init(fileCount: Int, installedSize: ByteCount) {
        self.fileCount = fileCount
        self.installedSize = installedSize
    }

    /// The limits of the largest pack.
    package static let largest = IndexBounds(
        fileCount: ManifestLimits.fileCount,
        installedSize: ManifestLimits.installedSize
    )

    /// The maximum number of directories, including implied parents.
    package var directories: Int { ManifestLimits.directories(fileCount: fileCount) }
    /// The maximum number of entries: files, links, and empty directories.
    package var entries: Int { fileCount + directories }
    /// The maximum number of frames.
    package var frames: Int {
        fileCount + IndexLimits.frameCount(ofSize: installedSize.rawValue)
    }

    /// The maximum number of bytes of such an index before compression.
    package var byteCount: Int {
        // Each entry takes a path, a target, a digest and numbers; each frame two digests, numbers and a
        // bundle of its own.
        let (entries, areMany) = entries.multipliedReportingOverflow(by: 2176)
        let (frames, areMore) = frames.multipliedReportingOverflow(by: 160)
        guard !areMany, !areMore else { return IndexLimits.byteCount }
        return min(IndexLimits.byteCount, entries + frames + 64)
    }
}

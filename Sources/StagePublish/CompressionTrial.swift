import StageFrame
import StageModel
import StageSystem

/// The tar archive of a recipe's files, compressed fast and not kept: it tells whether a slow compression is worth
/// its time.
///
/// Images, sounds and encrypted files gain next to nothing at any level, and slow levels take minutes for each
/// gigabyte to find that out. The fast level finds repeats within 128 MiB, so that files which are there twice
/// count as a gain.
struct CompressionTrial {
    /// The level that suffices for content that gains nothing.
    static let level = 1
    /// The bytes of a header in a tar archive.
    private static let headerSize = Int64(512)

    /// The bytes of the archive.
    let size: ByteCount
    /// Whether slow compression may gain what justifies decompression.
    ///
    /// Always true if the headers of the files have more than a thirty-second of the content's bytes.
    let promisesGain: Bool

    /// Compresses the files on `width` processors, and calls `progress` after each piece; the result does not
    /// depend on `width`.
    ///
    /// - Throws: ``PackagingError`` if a file cannot be read or has changed, or ``PackagingError/cancelled``.
    init(
        _ evaluation: RecipeEvaluation,
        width: Int,
        cancellation: Cancellation,
        progress: @escaping @Sendable (PackagingProgress) -> Void
    ) throws(PackagingError) {
        let stream = SharedStreamCompressor(
            StreamCompressor(
                level: Self.level,
                window: StreamCompressor.window(for: evaluation.archiveBound),
                width: width
            )
        )
        var length = 0
        var packager = ArchivePackager(format: .tar, threads: 1)
        packager.progress = { made in
            var made = made
            made.isTrial = true
            progress(made)
        }
        try packager.write(
            evaluation,
            cancellation: cancellation,
            written: { .zero },
            to: { (bytes) throws(FileError) in stream.write(bytes) { length += $0.count } }
        )
        if cancellation.isRequested { throw .cancelled }
        stream.finish { length += $0.count }
        size = ByteCount(length)
        let content = evaluation.installedSize
        let headers = Int64(evaluation.entries.count) * Self.headerSize
        promisesGain = Self.isGain(size, of: content) || headers > content.rawValue / 32
    }

    /// Returns whether compressed content is shorter by more than one byte in two hundred; a smaller gain does not
    /// justify decompression.
    static func isGain(_ size: ByteCount, of content: ByteCount) -> Bool {
        size.rawValue * 200 < content.rawValue * 199
    }
}

extension RecipeEvaluation {
    /// An upper bound for the size of a tar archive of the entries.
    var archiveBound: Int64 {
        // A header, and headers for a long name and target, in whole blocks, and the rest of the last block.
        let headers = Int64(entries.count) * 4096
        return installedSize.rawValue + headers + 1 << 10
    }
}

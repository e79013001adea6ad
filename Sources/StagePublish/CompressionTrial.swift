import StageFrame
import StageModel
import StageSystem

/// Finds the files of a recipe that compression makes hardly smaller.
///
/// Images, sounds and encrypted files gain next to nothing at any level, and slow levels take minutes for each
/// gigabyte to find that out. A fast compression of each file alone, in pieces, tells them apart.
struct CompressionTrial {
    /// The level of the trial, and the one that suffices for files that gain nothing.
    static let level = 1

    /// Smaller files gain with others: an archive has a header of 512 bytes for each.
    private static let leastFileSize = ByteCount(4 << 10)
    /// Fewer bytes in all are compressed slowly in less than a second.
    private static let leastSize = ByteCount(1 << 20)
    private static let pieceSize = 4 << 20
    /// The number of bytes that are read before they are compressed.
    private static let batchSize = 16 << 20

    /// The positions in ``RecipeEvaluation/entries`` of files that gain nothing, in order; empty if their sizes have a
    /// sum of less than 1 MiB.
    let incompressible: [Int]

    /// Compresses the files on `width` processors, and calls `progress` with the bytes read; the result does not
    /// depend on `width`.
    ///
    /// - Throws: ``PackagingError`` if a file cannot be read or has changed, or ``PackagingError/cancelled``.
    init(
        _ evaluation: RecipeEvaluation,
        width: Int,
        progress: @Sendable (PackagingProgress) -> Void
    ) async throws(PackagingError) {
        var run = Run(width: width)
        for (position, entry) in evaluation.entries.enumerated() {
            guard case .file = entry.content.kind else { continue }
            if entry.size >= Self.leastFileSize {
                try await run.add(entry, at: position)
            } else {
                run.progress.read = run.progress.read + entry.size
            }
            progress(run.progress)
        }
        await run.flush()
        var found: [Int] = []
        var sum = ByteCount.zero
        for (position, size) in run.sizes.sorted(by: { $0.key < $1.key }) {
            let content = evaluation.entries[position].size
            guard !Self.isGain(size, of: content) else { continue }
            found.append(position)
            sum = sum + content
        }
        incompressible = sum < Self.leastSize ? [] : found
    }

    /// Returns whether compressed content is shorter by more than one byte in two hundred; a smaller gain does not
    /// justify decompression.
    static func isGain(_ size: ByteCount, of content: ByteCount) -> Bool {
        size.rawValue * 200 < content.rawValue * 199
    }

    /// The pieces that wait for compression, and the results so far.
    private struct Run {
        let width: Int
        var progress = PackagingProgress(isTrial: true)
        /// The compressed sizes of files by position.
        var sizes: [Int: ByteCount] = [:]
        private var pending: [(position: Int, bytes: [UInt8])] = []
        private var pendingSize = 0
        private var buffer = [UInt8](repeating: 0, count: 1 << 20)

        init(width: Int) { self.width = width }

        mutating func add(
            _ entry: RecipeEvaluation.Entry,
            at position: Int
        ) async throws(PackagingError) {
            let file = try PackagingError.wrapping { () throws(FileError) in
                try File.open(readingRegular: entry.file)
            }
            var offset = Int64(0)
            while offset < entry.size.rawValue {
                if Task.isCancelled { throw .cancelled }
                let length = min(entry.size.rawValue - offset, Int64(CompressionTrial.pieceSize))
                let piece: [UInt8]
                do throws(FileError) {
                    piece = try read(Int(length), of: file, at: offset)
                } catch {
                    throw .file(error)
                }
                guard piece.count == length else { throw .changed(source: entry.source) }
                offset += length
                progress.read = progress.read + ByteCount(piece.count)
                pending.append((position, piece))
                pendingSize += piece.count
                if pendingSize >= CompressionTrial.batchSize { await flush() }
            }
        }

        /// Returns `count` bytes at an offset; fewer if the file ends before.
        private mutating func read(
            _ count: Int,
            of file: borrowing File,
            at offset: Int64
        ) throws(FileError) -> [UInt8] {
            var bytes: [UInt8] = []
            bytes.reserveCapacity(count)
            while bytes.count < count,
                case let more = try file.read(into: &buffer, at: offset + Int64(bytes.count)),
                more > 0
            {
                bytes += buffer[..<min(more, count - bytes.count)]
            }
            return bytes
        }

        /// Compresses what waits.
        mutating func flush() async {
            let made = await mapInParallel(pending.map(\.bytes), width: width) { pieces in
                var compressor = FrameCompressor(
                    level: CompressionTrial.level,
                    findsDistantRepeats: true
                )
                return pieces.map { ByteCount(compressor.compress($0.span).count) }
            }
            for (piece, size) in zip(pending, made) {
                sizes[piece.position, default: .zero] = sizes[piece.position, default: .zero] + size
            }
            pending = []
            pendingSize = 0
        }
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

import StageFrame
import StageModel
import StageSystem
import SystemPackage

/// Finds the files of a recipe that are incompressible, or nearly so.
///
/// Images, sounds and encrypted files gain next to nothing at any level, and slow levels take minutes for each
/// gigabyte to find that out. A fast compression of each file alone, in pieces, tells them apart.
struct CompressionTrial {
    /// The level of the trial, and the one that suffices for incompressible files.
    static let level = 1

    /// Smaller files count as compressible: at the fast level, the headers between them, 512 bytes for each, are often
    /// stored as they are.
    private static let leastFileSize = ByteCount(8 << 10)
    /// The smallest total size of incompressible files that counts: fewer bytes are compressed slowly in less than a second.
    private static let leastSize = ByteCount(1 << 20)

    /// The positions in ``RecipeEvaluation/entries`` of incompressible files, in order; empty if their sizes have a sum
    /// of less than 1 MiB.
    let incompressible: [Int]

    /// Compresses the files on `width` processors, and calls `progress` with the bytes read; the result does not
    /// depend on `width`.
    ///
    /// - Throws: ``PackagingError`` if a file cannot be read or is shorter now, or ``PackagingError/cancelled``.
    init(
        of evaluation: RecipeEvaluation,
        width: Int,
        progress: @escaping @Sendable (PackagingProgress) -> Void
    ) async throws(PackagingError) {
        var batch = PieceBatch(width: width, progress: progress)
        for (position, entry) in evaluation.entries.enumerated() {
            guard case .file = entry.content.kind else { continue }
            if entry.size < Self.leastFileSize {
                batch.countAsRead(entry)
            } else {
                try await batch.add(entry, at: position)
            }
        }
        try await batch.compress()
        var found: [Int] = []
        var sum = ByteCount.zero
        for (position, size) in batch.sizes.sorted(by: { $0.key < $1.key }) {
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
}

/// Pieces of files that are compressed at the same time.
private struct PieceBatch {
    /// A range of a file.
    private struct Piece: Sendable {
        var position: Int
        var entry: RecipeEvaluation.Entry
        var offset: Int64
        var length: Int
    }

    private static let pieceSize = Int64(4 << 20)

    private let width: Int
    private let progress: @Sendable (PackagingProgress) -> Void
    private var pieces: [Piece] = []
    private var pendingSize = Int64(0)
    private var done = PackagingProgress(isTrial: true)
    /// The compressed sizes of files, by position.
    private(set) var sizes: [Int: ByteCount] = [:]

    init(width: Int, progress: @escaping @Sendable (PackagingProgress) -> Void) {
        // Cancellation is polled after each batch.
        self.width = min(max(width, 1), 16)
        self.progress = progress
    }

    /// Adds a file, and compresses the pending pieces if they have two for each processor.
    mutating func add(
        _ entry: RecipeEvaluation.Entry,
        at position: Int
    ) async throws(PackagingError) {
        for offset in stride(from: 0, to: entry.size.rawValue, by: Int(Self.pieceSize)) {
            let length = min(entry.size.rawValue - offset, Self.pieceSize)
            pieces.append(
                Piece(position: position, entry: entry, offset: offset, length: Int(length))
            )
            pendingSize += length
            if pendingSize >= 2 * Int64(width) * Self.pieceSize { try await compress() }
        }
    }

    /// Counts a file as read without reading it.
    mutating func countAsRead(_ entry: RecipeEvaluation.Entry) {
        done.read = done.read + entry.size
    }

    /// Compresses the pending pieces, and adds to ``sizes``.
    mutating func compress() async throws(PackagingError) {
        if Task.isCancelled { throw .cancelled }
        let results = await mapInParallel(pieces, width: width) { Self.compress($0) }
        for (piece, result) in zip(pieces, results) {
            let size = try result.get()
            sizes[piece.position] = (sizes[piece.position] ?? .zero) + size
        }
        done.read = done.read + ByteCount(pendingSize)
        progress(done)
        pieces = []
        pendingSize = 0
    }

    /// Returns the compressed size of each piece.
    private static func compress(
        _ pieces: [Piece]
    ) -> [Result<ByteCount, PackagingError>] {
        var compressor = FrameCompressor(level: CompressionTrial.level, findsDistantRepeats: true)
        var results: [Result<ByteCount, PackagingError>] = []
        for piece in pieces {
            do throws(PackagingError) {
                let bytes = try read(piece)
                results.append(.success(ByteCount(compressor.compress(bytes.span).count)))
            } catch {
                results.append(.failure(error))
            }
        }
        return results
    }

    private static func read(_ piece: Piece) throws(PackagingError) -> [UInt8] {
        let bytes = try PackagingError.wrapping { () throws(FileError) in
            try File.open(readingRegular: piece.entry.file)
                .read(count: piece.length, at: piece.offset)
        }
        guard bytes.count == piece.length else { throw .changed(source: piece.entry.source) }
        return bytes
    }
}

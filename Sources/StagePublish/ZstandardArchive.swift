import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// A tar archive of a recipe's files, compressed with Zstandard: incompressible files come last, and are compressed
/// fast in a frame of their own.
///
/// A decoder reads the frames as one stream (RFC 8878, section 3). The files of a frame are in the order of the bytes
/// of their paths; directories and links are in the first.
struct ZstandardArchive: Sendable {
    /// The entries of a frame, by position, and the level at which they are compressed.
    private struct Frame: Sendable {
        var positions: [Int]
        var level: Int
    }

    /// The decoder's window in bytes, a power of two.
    let window: Int
    /// `true` if at most a fiftieth of the content is compressible.
    let isIncompressible: Bool
    private let first: Frame
    private let second: Frame?
    private let width: Int
    private let report: @Sendable (PackagingProgress) -> Void

    /// Chooses the frames of the files, after a trial.
    ///
    /// - Parameters:
    ///   - evaluation: The recipe's files.
    ///   - level: The compression level, 1 to 22.
    ///   - triesFast: Whether incompressible files are compressed fast.
    ///   - largestWindow: The maximum number of bytes of the decoder's window.
    ///   - width: The number of compression threads; the archive does not depend on it.
    ///   - report: Called with the bytes that were read and written.
    /// - Throws: ``PackagingError`` if a file cannot be read or has changed, or ``PackagingError/cancelled``.
    init(
        of evaluation: RecipeEvaluation,
        level: Int,
        triesFast: Bool,
        largestWindow: Int = StreamCompressor.largestWindow,
        width: Int,
        report: @escaping @Sendable (PackagingProgress) -> Void
    ) async throws(PackagingError) {
        self.width = width
        self.report = report
        window = min(StreamCompressor.window(for: evaluation.archiveBound), largestWindow)
        let all = Array(evaluation.entries.indices)
        var fast: [Int] = []
        if triesFast, level > CompressionTrial.level {
            let trial = try await CompressionTrial(of: evaluation, width: width, progress: report)
            fast = trial.incompressible
        }
        let isFast = Set(fast)
        let slow = fast.isEmpty ? all : all.filter { !isFast.contains($0) }
        let fastSize = fast.reduce(ByteCount.zero) { $0 + evaluation.entries[$1].size }
        isIncompressible =
            !fast.isEmpty && fastSize.rawValue * 50 >= evaluation.installedSize.rawValue * 49
        if fastSize == evaluation.installedSize, !fast.isEmpty {
            first = Frame(positions: all, level: CompressionTrial.level)
            second = nil
        } else {
            first = Frame(positions: slow, level: level)
            second =
                fast.isEmpty ? nil : Frame(positions: fast, level: CompressionTrial.level)
        }
    }

    /// Returns the size of the archive, without keeping it.
    func size(
        of evaluation: RecipeEvaluation,
        comparedWith index: ContentIndex,
        cancellation: Cancellation
    ) throws(PackagingError) -> ByteCount {
        var size = ByteCount.zero
        try write(
            evaluation,
            comparedWith: index,
            isTrial: true,
            cancellation: cancellation
        ) { (bytes) throws(FileError) in
            size = size + ByteCount(bytes.count)
            return .zero
        }
        return size
    }

    /// Writes the archive to a sink, which receives its bytes in order and returns how many it has.
    ///
    /// - Parameters:
    ///   - evaluation: The recipe's files.
    ///   - index: The index of the files, which have changed if their digests differ; `nil` for files that no index describes.
    ///   - isTrial: Whether the progress is that of a trial.
    ///   - cancellation: Polled after each buffer that was read or written.
    ///   - sink: Receives the bytes.
    /// - Throws: ``PackagingError``; the sink's output is incomplete then.
    func write(
        _ evaluation: RecipeEvaluation,
        comparedWith index: ContentIndex? = nil,
        isTrial: Bool = false,
        cancellation: Cancellation,
        to sink: @escaping (Span<UInt8>) throws(FileError) -> ByteCount
    ) throws(PackagingError) {
        let stream = SharedStreamCompressor(
            StreamCompressor(level: first.level, window: window, width: width)
        )
        do throws(PackagingError) {
            try write(
                evaluation,
                expecting: evaluation.digests(in: index),
                through: stream,
                progress: PackagingProgress(isTrial: isTrial),
                cancellation: cancellation,
                to: sink
            )
        } catch {
            stream.abandon()
            throw cancellation.isRequested ? .cancelled : error
        }
    }

    private func write(
        _ evaluation: RecipeEvaluation,
        expecting digests: [Digest?],
        through stream: SharedStreamCompressor,
        progress: PackagingProgress,
        cancellation: Cancellation,
        to sink: @escaping (Span<UInt8>) throws(FileError) -> ByteCount
    ) throws(PackagingError) {
        var progress = progress
        let report = report
        // Polls, too: while its input is full, and at the end of a frame, a compressor works long without reading.
        let append = { (bytes: Span<UInt8>) throws(FileError) in
            if cancellation.isRequested {
                throw FileError("compress", path: "", errno: .canceled)
            }
            progress.written = try sink(bytes)
            report(progress)
        }
        var tar = try EntryWriter(.tar, isBuffered: false, cancellation: cancellation) {
            (bytes) throws(FileError) in try stream.write(bytes, to: append)
        }
        var buffer = EntryWriter.makeBuffer()
        for (number, frame) in [first, second].compactMap(\.self).enumerated() {
            if number > 0 {
                try tar.finishEntry()
                try PackagingError.wrapping { () throws(FileError) in
                    try stream.startFrame(level: frame.level, to: append)
                }
            }
            for position in frame.positions {
                try tar.add(
                    evaluation.entries[position],
                    expecting: digests[position],
                    using: &buffer
                ) {
                    progress.read = progress.read + ByteCount($0)
                    report(progress)
                }
            }
        }
        try tar.finish()
        try PackagingError.wrapping { () throws(FileError) in try stream.finish(to: append) }
    }
}

extension RecipeEvaluation {
    /// An upper bound for the size of a tar archive of the entries.
    fileprivate var archiveBound: Int64 {
        // A header, and headers for a long name and target, in whole blocks, and the rest of the last block.
        let headers = Int64(entries.count) * 4096
        return installedSize.rawValue + headers + 1 << 10
    }

    /// Returns the digest of each entry in an index that was made of them; `nil` for all if there is no index.
    fileprivate func digests(in index: ContentIndex?) -> [Digest?] {
        var digests = [Digest?](repeating: nil, count: entries.count)
        guard let list = index?.entries else { return digests }
        // Entries and index have the same order, but an index has no directories with entries.
        var next = list.startIndex
        for (position, entry) in entries.enumerated() where next < list.endIndex {
            // Compares bytes: names that are canonically equivalent in Unicode are different files.
            guard list.pathBytes(at: next).elementsEqual(entry.content.path.text.utf8) else {
                continue
            }
            digests[position] = list.file(at: next)?.digest
            next += 1
        }
        precondition(next == list.endIndex, "the index is of other entries")
        return digests
    }
}

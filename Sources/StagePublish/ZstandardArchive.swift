import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem

/// A tar archive of a recipe's files, compressed with Zstandard: files that gain nothing come last, and are compressed
/// fast in a frame of their own.
///
/// A decoder reads the frames as one stream (RFC 8878, section 3). The files of a frame are in the order of the bytes
/// of their paths; directories and links are in the first.
struct ZstandardArchive: Sendable {
    /// The compression level, 1 to 22.
    var level: Int
    /// Whether files that gain nothing are compressed fast.
    var triesFast: Bool
    /// The decoder's window in bytes, a power of two.
    var window: Int
    /// The number of compression threads; the archive does not depend on it.
    var width: Int
    /// Called with the bytes that were read and written.
    var report: @Sendable (PackagingProgress) -> Void

    /// Entries that share a frame, by position.
    struct Part: Sendable {
        var positions: [Int]
        var level: Int
    }

    /// Returns the frames for the entries, after a trial.
    func parts(of evaluation: RecipeEvaluation) async throws(PackagingError) -> [Part] {
        let all = Part(positions: Array(evaluation.entries.indices), level: level)
        guard triesFast, level > CompressionTrial.level else { return [all] }
        let trial = try await CompressionTrial(evaluation, width: width, progress: report)
        guard !trial.incompressible.isEmpty else { return [all] }
        let fast = Set(trial.incompressible)
        let others = all.positions.filter { !fast.contains($0) }
        guard others.contains(where: { evaluation.entries[$0].size > .zero }) else {
            return [Part(positions: all.positions, level: CompressionTrial.level)]
        }
        return [
            Part(positions: others, level: level),
            Part(positions: trial.incompressible, level: CompressionTrial.level),
        ]
    }

    /// Writes the archive to a sink, which receives its bytes in order and returns how many it has.
    ///
    /// - Parameters:
    ///   - parts: The frames, of which there is at least one.
    ///   - evaluation: The recipe's files.
    ///   - index: The index of the files, which have changed if their digests differ; `nil` to compare sizes alone.
    ///   - cancellation: Polled after each buffer that was read or written.
    ///   - sink: Receives the bytes.
    /// - Throws: ``PackagingError``; the sink's output is incomplete then.
    func write(
        _ parts: [Part],
        of evaluation: RecipeEvaluation,
        comparedWith index: ContentIndex? = nil,
        cancellation: Cancellation,
        to sink: @escaping (Span<UInt8>) throws(FileError) -> ByteCount
    ) throws(PackagingError) {
        let stream = SharedStreamCompressor(
            StreamCompressor(level: parts[0].level, window: window, width: width)
        )
        var count = PackagingProgress()
        let report = report
        let take = { (bytes: Span<UInt8>) throws(FileError) in
            count.written = try sink(bytes)
            report(count)
        }
        let takeRest = { (bytes: Span<UInt8>) throws(PackagingError) in
            if cancellation.isRequested { throw PackagingError.cancelled }
            try PackagingError.wrapping { () throws(FileError) in try take(bytes) }
        }
        var tar = try EntryWriter(.tar, isBuffered: false, cancellation: cancellation) {
            (bytes) throws(FileError) in try stream.write(bytes, to: take)
        }
        let digests = evaluation.digests(in: index)
        var buffer = EntryWriter.makeBuffer()
        for (number, part) in parts.enumerated() {
            if number > 0 {
                try tar.finishEntry()
                try stream.startFrame(level: part.level, to: takeRest)
            }
            for position in part.positions {
                try tar.add(
                    evaluation.entries[position],
                    expecting: digests[position],
                    using: &buffer
                ) {
                    count.read = count.read + ByteCount($0)
                    report(count)
                }
            }
        }
        try tar.finish()
        try stream.finish(to: takeRest)
    }
}

extension RecipeEvaluation {
    /// Returns the digest of each entry in an index that was made of them; `nil` for all if there is no index.
    fileprivate func digests(in index: ContentIndex?) -> [Digest?] {
        var digests = [Digest?](repeating: nil, count: entries.count)
        guard let list = index?.entries else { return digests }
        // Both have one order, but an index has no directories with entries.
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

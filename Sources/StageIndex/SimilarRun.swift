/// A range of the content of a patch's part whose bytes mostly equal those of a range of the prefix.
///
/// The frame of the part has the differences of these bytes instead of the bytes. A program that was compiled again has
/// other addresses everywhere, so that it repeats little of the older one, but most differences are zero, and many of the others
/// are the same number: C. Percival, "Naive differences of executable code" (2003), which `bsdiff` implements.
package struct SimilarRun: Equatable, Sendable {
    /// The bytes of the part's content; at least one.
    package var content: Range<Int>
    /// The offset in the part's prefix of the byte that corresponds to the first one.
    package var prefixOffset: Int

    /// Creates a run from its fields.
    package init(content: Range<Int>, prefixOffset: Int) {
        self.content = content
        self.prefixOffset = prefixOffset
    }

    /// The number to add to an offset in the content to get that in the prefix.
    fileprivate var shift: Int { prefixOffset - content.lowerBound }
}

extension [SimilarRun] {
    /// Returns the encoded runs, which are in the order of the content and do not overlap; equal runs have equal bytes.
    package func encoded() -> [UInt8] {
        var bytes: [UInt8] = []
        var (end, shift) = (0, 0)
        for run in self {
            bytes.append(number: run.content.lowerBound - end)
            bytes.append(number: run.content.count)
            bytes.append(difference: Int64(run.shift - shift))
            (end, shift) = (run.content.upperBound, run.shift)
        }
        return bytes
    }
}

/// Restores the content of a part from the bytes of its frame: reads the encoded runs, with which these begin, and adds the bytes of
/// the prefix to the differences that follow.
package struct SimilarRunDecoder: ~Copyable {
    private let part: PatchTable.Part
    private let prefixLength: Int
    /// The encoded runs, as far as they have arrived.
    private var encodedRuns: [UInt8] = []
    /// Reads the runs once all of them have arrived.
    private var reader = ByteReader([])
    /// The number of bytes of the content so far.
    private var offset = 0
    /// The first run that does not end before `offset`; empty before the first one and after the last.
    private var run = SimilarRun(content: 0..<0, prefixOffset: 0)

    /// Creates a decoder for a part of a table that ``PatchTable/init(decoding:)`` returned.
    package init(_ part: PatchTable.Part) {
        self.part = part
        prefixLength = part.prefixLength
        encodedRuns.reserveCapacity(part.runsLength)
    }

    /// Returns the content that the next bytes of the decompressed frame stand for.
    ///
    /// - Parameters:
    ///   - bytes: The bytes, in the order of the frame.
    ///   - prefix: The prefix of the part, of exactly ``PatchTable/Part/prefixLength`` bytes.
    /// - Returns: The content, in order; empty while the runs arrive.
    /// - Throws: ``IndexError`` if the runs are truncated, or if one exceeds the content or the prefix.
    package mutating func restore(
        _ bytes: Span<UInt8>,
        after prefix: Span<UInt8>
    ) throws(IndexError) -> [UInt8] {
        let count = min(part.runsLength - encodedRuns.count, bytes.count)
        if count > 0 {
            unsafe bytes.extracting(first: count).withUnsafeBufferPointer {
                unsafe encodedRuns.append(contentsOf: $0)
            }
            guard encodedRuns.count == part.runsLength else { return [] }
            reader = ByteReader(encodedRuns)
            try advance()
        }
        var content = unsafe bytes.extracting(droppingFirst: count).withUnsafeBufferPointer {
            unsafe Array($0)
        }
        try add(prefix, to: &content)
        return content
    }

    /// Adds the bytes of the prefix to the next bytes of the content.
    private mutating func add(
        _ prefix: Span<UInt8>,
        to content: inout [UInt8]
    ) throws(IndexError) {
        let end = offset + content.count
        while run.content.lowerBound < end, !run.content.isEmpty {
            for position in run.content.clamped(to: offset..<end) {
                content[position - offset] &+= prefix[position + run.shift]
            }
            guard run.content.upperBound <= end else { break }
            try advance()
        }
        offset = end
    }

    /// Reads the next run.
    private mutating func advance() throws(IndexError) {
        let (end, shift) = (run.content.upperBound, run.shift)
        guard reader.left > 0 else {
            run = SimilarRun(content: end..<end, prefixOffset: end + shift)
            return
        }
        let remaining = part.contentLength - end
        let gap = try reader.number("the bytes before a run", in: 0...remaining)
        guard gap < remaining else { throw reader.fault("a run begins behind the content") }
        let length = try reader.number("the length of a run", in: 1...remaining - gap)
        let step = try reader.difference("where a run begins in the prefix")
        let (start, isTooFar) = Int64(end + gap + shift).addingReportingOverflow(step)
        let last = Int64(prefixLength - length)
        guard !isTooFar, start >= 0, start <= last else {
            throw reader.fault("a run refers to bytes that the prefix lacks")
        }
        run = SimilarRun(content: end + gap..<end + gap + length, prefixOffset: Int(start))
    }
}

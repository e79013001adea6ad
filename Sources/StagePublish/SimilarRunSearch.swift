import StageIndex
import StageSystem

/// Finds ranges of a part's content that are similar to ranges of its prefix, as `bsdiff` does (``SimilarRun``).
///
/// A run continues through mismatches until another offset in the prefix matches the following bytes clearly better. Both of its
/// ends are then moved to where most bytes are equal. Offsets are found by eight equal bytes and not by a sorted index of all
/// suffixes, which would take eight times the memory of the prefix and minutes: runs in programs have such eight bytes every
/// few instructions.
struct SimilarRunSearch {
    /// The maximum number of bytes that the encoded runs may have.
    let mostBytes: Int

    /// The number of equal bytes by which offsets in the prefix are found.
    private static let wordLength = MemoryLayout<UInt64>.size
    /// The number of bytes by which the equal bytes at another offset have to exceed those at the current one.
    ///
    /// With 8, versions of pydantic-core and Polars have so many runs that encoding the runs takes the bytes that they save.
    private static let leastGain = 12
    /// The maximum number of bytes up to the first mismatch that are compared at another offset.
    ///
    /// It is far above the length between mismatches in programs, and limits the time for content that repeats itself.
    private static let reach = 256
    /// The maximum number of bytes by which a run may begin before the offset at which it was found.
    ///
    /// It limits the time for content that repeats itself, each offset of which is found again and again.
    private static let reachBack = 1024
    /// The minimum number of bytes of an encoded run.
    private static let leastRunLength = 3
    /// The positions between two checks for cancellation.
    private static let checkInterval = 1 << 20

    private enum Direction { case after, before }

    /// The start of a run, as offsets in the content and in the prefix.
    private struct Start {
        var content: Int
        var prefix: Int

        var shift: Int { prefix - content }

        func moved(by count: Int) -> Start {
            Start(content: content + count, prefix: prefix + count)
        }
    }

    /// Returns the runs, in the order of the content and without overlaps.
    ///
    /// Takes time linear in the number of bytes. Takes 24 bytes of memory for each run, and a table of 4 to 8 bytes for each byte of
    /// the prefix, at most 128 MiB.
    ///
    /// - Parameters:
    ///   - content: The content.
    ///   - prefix: The prefix.
    ///   - cancellation: Ends the search.
    /// - Returns: The runs; `nil` if they have more bytes than allowed, or if cancelled.
    func runs(
        of content: [UInt8],
        in prefix: [UInt8],
        unless cancellation: Cancellation
    ) -> [SimilarRun]? {
        guard min(content.count, prefix.count) >= Self.wordLength else { return [] }
        let offsets = OffsetTable(of: prefix.span)
        return runs(of: content.span, in: prefix.span, by: offsets, unless: cancellation)
    }

    private func runs(
        of content: Span<UInt8>,
        in prefix: Span<UInt8>,
        by offsets: OffsetTable,
        unless cancellation: Cancellation
    ) -> [SimilarRun]? {
        var runs: [SimilarRun] = []
        var current: Start?
        var offset = 0
        repeat {
            let found = Self.next(
                from: offset,
                than: current,
                of: content,
                in: prefix,
                by: offsets,
                unless: cancellation
            )
            if cancellation.isRequested { return nil }
            let end = found?.content ?? content.count
            var (length, before) = (0, 0)
            if let current {
                let limit = min(end - current.content, prefix.count - current.prefix)
                length = Self.lengthOfRun(.after, current, limit: limit, of: content, in: prefix)
            }
            if let found {
                let begin = current?.content ?? 0
                let limit = min(end - begin, found.prefix, Self.reachBack)
                before = Self.lengthOfRun(.before, found, limit: limit, of: content, in: prefix)
                let common = length + before - (end - begin)
                if let current, common > 0 {
                    let share = Self.shareOfFirst(
                        current.moved(by: length - common),
                        found.moved(by: -before),
                        count: common,
                        of: content,
                        in: prefix
                    )
                    length += share - common
                    before -= share
                }
            }
            if let current, length > 0 {
                let range = current.content..<current.content + length
                runs.append(SimilarRun(content: range, prefixOffset: current.prefix))
                guard runs.count * Self.leastRunLength <= mostBytes else { return nil }
            }
            current = found?.moved(by: -before)
            offset = end + Self.wordLength
        } while current != nil
        return runs
    }

    /// Returns the first offset in the content, from `offset` on, whose bytes match another range of the prefix clearly better than
    /// the current run, with the offset of that range; `nil` if there is none.
    private static func next(
        from offset: Int,
        than current: Start?,
        of content: Span<UInt8>,
        in prefix: Span<UInt8>,
        by offsets: OffsetTable,
        unless cancellation: Cancellation
    ) -> Start? {
        var offset = offset
        var nextCheck = offset
        while offset <= content.count - wordLength {
            if offset >= nextCheck {
                if cancellation.isRequested { return nil }
                nextCheck = offset + checkInterval
            }
            let here = word(at: offset, of: content)
            let own = current.map { offset + $0.shift } ?? -1
            if own >= 0, own <= prefix.count - wordLength, word(at: own, of: prefix) == here {
                offset += wordLength
                continue
            }
            if let match = offsets.offset(of: here), match != own {
                let length = lengthOfMatch(offset, match, of: content, in: prefix)
                if length >= wordLength,
                    length > leastGain
                        + equalCount(offset, own, length: length, of: content, in: prefix)
                {
                    return Start(content: offset, prefix: match)
                }
            }
            offset += 1
        }
        return nil
    }

    /// Returns the number of equal bytes up to the first mismatch, at most ``reach``.
    private static func lengthOfMatch(
        _ offset: Int,
        _ prefixOffset: Int,
        of content: Span<UInt8>,
        in prefix: Span<UInt8>
    ) -> Int {
        let most = min(reach, content.count - offset, prefix.count - prefixOffset)
        var length = 0
        while length < most, content[offset + length] == prefix[prefixOffset + length] {
            length += 1
        }
        return length
    }

    /// Returns the number of equal bytes from the two offsets on; `prefixOffset` may lie outside of the prefix.
    private static func equalCount(
        _ offset: Int,
        _ prefixOffset: Int,
        length: Int,
        of content: Span<UInt8>,
        in prefix: Span<UInt8>
    ) -> Int {
        guard prefixOffset >= 0 else { return 0 }
        var count = 0
        for step in 0..<max(0, min(length, prefix.count - prefixOffset))
        where content[offset + step] == prefix[prefixOffset + step] { count += 1 }
        return count
    }

    /// Returns the length of a run, after its start or before it, at which its equal bytes exceed the unequal ones by most.
    private static func lengthOfRun(
        _ direction: Direction,
        _ start: Start,
        limit: Int,
        of content: Span<UInt8>,
        in prefix: Span<UInt8>
    ) -> Int {
        var (score, best, length, step) = (0, 0, 0, 0)
        while step < limit {
            let nextWord = start.moved(by: direction == .after ? step : -step - wordLength)
            if step <= limit - wordLength,
                word(at: nextWord.content, of: content) == word(at: nextWord.prefix, of: prefix)
            {
                score += wordLength
                step += wordLength
            } else {
                let next = start.moved(by: direction == .after ? step : -step - 1)
                score += content[next.content] == prefix[next.prefix] ? 1 : -1
                step += 1
            }
            if score > best { (best, length) = (score, step) }
        }
        return length
    }

    /// Returns how many of `count` bytes that two runs share, from the first one on, belong to the first run so that the most
    /// bytes are equal; of equally good numbers, the largest.
    private static func shareOfFirst(
        _ first: Start,
        _ second: Start,
        count: Int,
        of content: Span<UInt8>,
        in prefix: Span<UInt8>
    ) -> Int {
        var (score, best, share) = (0, 0, 0)
        for step in 0..<count {
            let byte = content[first.content + step]
            if byte == prefix[first.prefix + step] { score += 1 }
            if byte == prefix[second.prefix + step] { score -= 1 }
            if score >= best { (best, share) = (score, step + 1) }
        }
        return share
    }
}

/// Hash table of the offsets of words in a prefix; of equal words, the last offset.
private struct OffsetTable {
    /// For each hash the offset of a word with it, plus 1; 0 for none.
    private var offsets: [UInt32]
    private let shift: UInt64

    /// The maximum number of bits of a hash: 128 MiB of offsets.
    private static let mostBits = 25

    init(of prefix: Span<UInt8>) {
        let bits = min(max(Int.bitWidth - prefix.count.leadingZeroBitCount, 8), Self.mostBits)
        shift = UInt64(UInt64.bitWidth - bits)
        offsets = [UInt32](repeating: 0, count: 1 << bits)
        for offset in 0...prefix.count - MemoryLayout<UInt64>.size {
            offsets[slot(of: word(at: offset, of: prefix))] = UInt32(truncatingIfNeeded: offset + 1)
        }
    }

    /// Returns an offset at which the word may be; the caller compares the bytes there.
    func offset(of word: UInt64) -> Int? {
        let next = offsets[slot(of: word)]
        return next == 0 ? nil : Int(next) - 1
    }

    /// Multiplies by 2^64 divided by the golden ratio (Knuth, "The Art of Computer Programming", 6.4).
    private func slot(of word: UInt64) -> Int {
        Int(truncatingIfNeeded: (word &* 0x9E37_79B9_7F4A_7C15) >> shift)
    }
}

private func word(at offset: Int, of bytes: Span<UInt8>) -> UInt64 {
    unsafe bytes.bytes.unsafeLoadUnaligned(fromByteOffset: offset, as: UInt64.self).littleEndian
}

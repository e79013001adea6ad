import StageIndex

/// Finds runs of a part's content that are similar to runs of its prefix, as `bsdiff` does (``SimilarRun``).
///
/// A run goes on through mismatches, until another place of the prefix has clearly more in common with what follows. Both of its
/// ends are then moved to where most bytes are equal. Places are found by eight equal bytes and not by a sorted index of all
/// suffixes, which would take eight times the memory of the prefix and minutes: runs in programs have such eight bytes every
/// few instructions.
enum SimilarRunSearch {
    /// The number of equal bytes by which places are found.
    private static let wordLength = MemoryLayout<UInt64>.size
    /// The number of bytes by which another place has to have more in common than the current one.
    ///
    /// With 8, runs of
    /// versions of pydantic-core and Polars are so many that their table takes what the content saves.
    private static let leastGain = 12
    /// The most bytes that are compared at two places.
    ///
    /// It is far above the length between mismatches in programs, and limits the
    /// time for content that repeats itself.
    private static let reach = 256

    /// Where a run begins on both sides.
    private struct Start {
        var content: Int
        var prefix: Int

        var shift: Int { prefix - content }

        func moved(by count: Int) -> Start {
            Start(content: content + count, prefix: prefix + count)
        }
    }

    /// Returns the runs, in the order of the content.
    ///
    /// Takes time linear in the number of bytes, and 4 to 8 bytes of memory for each byte of the prefix, at most 128 MiB.
    static func runs(of content: [UInt8], in prefix: [UInt8]) -> [SimilarRun] {
        guard min(content.count, prefix.count) >= wordLength else { return [] }
        let places = unsafe PlaceTable(of: prefix.span.bytes)
        return runs(of: content.span, in: prefix.span, by: places)
    }

    private static func runs(
        of content: Span<UInt8>,
        in prefix: Span<UInt8>,
        by places: PlaceTable
    ) -> [SimilarRun] {
        var runs: [SimilarRun] = []
        var current: Start?
        var offset = 0
        repeat {
            let found = next(from: offset, than: current, of: content, in: prefix, by: places)
            let begin = current?.content ?? 0
            let end = found?.content ?? content.count
            var length = 0
            if let current {
                length = lengthOfRun(from: current, to: end, of: content, in: prefix)
            }
            var before = 0
            if let found {
                before = lengthOfRun(before: found, from: begin, of: content, in: prefix)
            }
            if let current, let found, length + before > end - begin {
                let both = length + before - (end - begin)
                let share = shareOfFirst(
                    current.moved(by: length - both),
                    found.moved(by: -before),
                    count: both,
                    of: content,
                    in: prefix
                )
                length += share - both
                before -= share
            }
            if let current, length > 0 {
                let range = current.content..<current.content + length
                runs.append(SimilarRun(content: range, prefixOffset: current.prefix))
            }
            current = found?.moved(by: -before)
            offset = end + wordLength
        } while current != nil
        return runs
    }

    /// Returns the first place from an offset on where another place of the prefix has clearly more in common with the content than
    /// the current run; `nil` if none has.
    private static func next(
        from offset: Int,
        than current: Start?,
        of content: Span<UInt8>,
        in prefix: Span<UInt8>,
        by places: PlaceTable
    ) -> Start? {
        var offset = offset
        while offset <= content.count - wordLength {
            let word = word(at: offset, of: content)
            let own = current.map { offset + $0.shift } ?? -1
            if own >= 0, own <= prefix.count - wordLength, Self.word(at: own, of: prefix) == word {
                offset += wordLength
                continue
            }
            if let place = places.place(of: word), place != own {
                let length = lengthOfMatch(offset, place, of: content, in: prefix)
                if length >= wordLength,
                    length > leastGain
                        + equalCount(offset, own, length: length, of: content, in: prefix)
                {
                    return Start(content: offset, prefix: place)
                }
            }
            offset += 1
        }
        return nil
    }

    private static func word(at offset: Int, of bytes: Span<UInt8>) -> UInt64 {
        unsafe bytes.bytes.unsafeLoadUnaligned(fromByteOffset: offset, as: UInt64.self)
            .littleEndian
    }

    /// Returns the number of equal bytes up to the first mismatch, at most ``reach``.
    private static func lengthOfMatch(
        _ offset: Int,
        _ place: Int,
        of content: Span<UInt8>,
        in prefix: Span<UInt8>
    ) -> Int {
        let most = min(reach, content.count - offset, prefix.count - place)
        var length = 0
        while length < most, content[offset + length] == prefix[place + length] { length += 1 }
        return length
    }

    /// Returns the number of equal bytes at two places; `place` may lie outside of the prefix.
    private static func equalCount(
        _ offset: Int,
        _ place: Int,
        length: Int,
        of content: Span<UInt8>,
        in prefix: Span<UInt8>
    ) -> Int {
        guard place >= 0 else { return 0 }
        var count = 0
        for step in 0..<max(0, min(length, prefix.count - place))
        where content[offset + step] == prefix[place + step] { count += 1 }
        return count
    }

    /// Returns how far from its start a run has the most equal bytes beyond half of its length.
    private static func lengthOfRun(
        from start: Start,
        to end: Int,
        of content: Span<UInt8>,
        in prefix: Span<UInt8>
    ) -> Int {
        var (score, best, length, step) = (0, 0, 0, 0)
        let most = min(end - start.content, prefix.count - start.prefix)
        while step < most {
            let (offset, place) = (start.content + step, start.prefix + step)
            if step <= most - wordLength,
                word(at: offset, of: content) == word(at: place, of: prefix)
            {
                score += wordLength
                step += wordLength
            } else {
                score += content[offset] == prefix[place] ? 1 : -1
                step += 1
            }
            if score > best { (best, length) = (score, step) }
        }
        return length
    }

    /// Returns how far before its start, and not before `begin`, a run has the most equal bytes beyond half of its length.
    private static func lengthOfRun(
        before start: Start,
        from begin: Int,
        of content: Span<UInt8>,
        in prefix: Span<UInt8>
    ) -> Int {
        var (score, best, length, step) = (0, 0, 0, 0)
        let most = min(start.content - begin, start.prefix)
        while step < most {
            let (offset, place) = (start.content - step, start.prefix - step)
            if step <= most - wordLength,
                word(at: offset - wordLength, of: content)
                    == word(at: place - wordLength, of: prefix)
            {
                score += wordLength
                step += wordLength
            } else {
                score += content[offset - 1] == prefix[place - 1] ? 1 : -1
                step += 1
            }
            if score > best { (best, length) = (score, step) }
        }
        return length
    }

    /// Returns how many of some bytes, from the first on, the first of two runs takes so that most are equal.
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
            if score > best { (best, share) = (score, step + 1) }
        }
        return share
    }
}

/// For words of a prefix, the last place of each.
private struct PlaceTable {
    /// For each hash the place of a word with it, plus 1; 0 for none.
    private var places: [UInt32]
    private let shift: UInt64

    /// The most bits of a hash: 128 MiB of places.
    private static let mostBits = 25

    init(of prefix: RawSpan) {
        let bits = min(max(Int.bitWidth - prefix.byteCount.leadingZeroBitCount, 8), Self.mostBits)
        shift = UInt64(UInt64.bitWidth - bits)
        places = [UInt32](repeating: 0, count: 1 << bits)
        for offset in 0...prefix.byteCount - MemoryLayout<UInt64>.size {
            let word = unsafe prefix.unsafeLoadUnaligned(fromByteOffset: offset, as: UInt64.self)
            places[slot(of: word.littleEndian)] = UInt32(truncatingIfNeeded: offset + 1)
        }
    }

    /// Returns where a word may be; the bytes there may be others.
    func place(of word: UInt64) -> Int? {
        let place = places[slot(of: word)]
        return place == 0 ? nil : Int(place) - 1
    }

    /// Multiplies by 2^64 divided by the golden ratio (Knuth, "The Art of Computer Programming", 6.4).
    private func slot(of word: UInt64) -> Int {
        Int(truncatingIfNeeded: (word &* 0x9E37_79B9_7F4A_7C15) >> shift)
    }
}

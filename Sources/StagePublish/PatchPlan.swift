import StageIndex

/// The parts of a patch: consecutive pieces of the newer version, and for each the ranges of the older version's pieces
/// that it refers to.
///
/// A pure value, equal for equal indexes and matches.
struct PatchPlan: Sendable {
    /// A part.
    struct Part: Equatable, Sendable {
        /// The range of the bytes of its pieces.
        var range: Range<Int64>
        /// The ranges of the older version's pieces, ascending.
        var prefix: [Range<Int64>]
    }

    let parts: [Part]

    /// Plans a patch.
    ///
    /// - Parameters:
    ///   - content: The pieces that only the newer version has.
    ///   - source: All pieces of the older version.
    ///   - limit: The maximum number of bytes on either side of a part; at least ``IndexLimits/frameLength``.
    ///   - choice: Chooses the prefixes; `nil` if each part refers to all content that only the older version has.
    init(
        of content: PatchContent,
        after source: PatchContent,
        limit: Int64,
        by choice: PrefixChoice?
    ) {
        // Reserves bytes for the runs of a part (``PatchTable/Part/maximumRunBytes(forContentOf:limit:)``).
        let reserved = limit / Int64(PatchTable.Part.leastContentPerRunByte)
        let most = max(limit - reserved, Int64(IndexLimits.frameLength))
        parts = Self.cut(content, limit: most).map { pieces in
            let all = [0..<source.changedSize].filter { !$0.isEmpty }
            return Part(
                range: content.start(of: pieces.lowerBound)..<content.start(of: pieces.upperBound),
                prefix: choice?.ranges(for: content.pieces[pieces], limit: limit) ?? all
            )
        }
    }

    /// Cuts content into as few parts as possible, of about equal sizes.
    private static func cut(_ content: PatchContent, limit: Int64) -> [Range<Int>] {
        let count = max(1, (content.size + limit - 1) / limit)
        let target = (content.size + count - 1) / count
        var parts: [Range<Int>] = []
        var first = 0
        for position in content.pieces.indices {
            let start = content.start(of: first)
            if content.ends[position] - start > limit {
                parts.append(first..<position)
                first = position
            } else if content.ends[position] - start >= target {
                parts.append(first..<position + 1)
                first = position + 1
            }
        }
        if first < content.pieces.count { parts.append(first..<content.pieces.count) }
        return parts
    }
}

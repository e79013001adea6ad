/// Content-defined chunking with FastCDC (Xia et al., USENIX ATC 2016): a gear hash with normalised chunking.
///
/// The content determines the boundaries, so that an insertion changes only nearby ones. Chunks have 16 to
/// 256 KiB, about 64 KiB on average. The parameters are part of the format: with others, fewer published
/// chunks would be found again.
package enum ContentChunker {
    /// The smallest chunk in bytes, except for the last one.
    package static let minimum = 16 << 10
    /// The number of bytes after which boundaries become more likely.
    package static let normal = 64 << 10
    /// The largest chunk in bytes.
    package static let maximum = 256 << 10

    /// The number of upper hash bits that are zero at a boundary: before and after `normal`.
    private static let bits = (before: UInt64(18), after: UInt64(14))

    /// Returns the length of the first chunk of `bytes`.
    ///
    /// - Parameter bytes: The rest of the content, or at least its next ``maximum`` bytes.
    /// - Returns: The length in bytes.
    package static func firstChunk(of bytes: Span<UInt8>) -> Int {
        let end = min(bytes.count, maximum)
        guard end > minimum else { return end }
        let middle = min(end, normal)
        return unsafe GearHash.table.withUnsafeBufferPointer { gear in
            var hash: UInt64 = 0
            var index = minimum
            while index < middle {
                unsafe hash = hash << 1 &+ gear[Int(bytes[index])]
                index += 1
                if hash >> (64 - bits.before) == 0 { return index }
            }
            while index < end {
                unsafe hash = hash << 1 &+ gear[Int(bytes[index])]
                index += 1
                if hash >> (64 - bits.after) == 0 { return index }
            }
            return end
        }
    }
}

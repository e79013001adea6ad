/// Cuts content where the content itself says so, so that an insertion moves no cut but the next ones:
/// FastCDC (Xia et al., USENIX ATC 2016) with a gear hash and normalised chunking.
///
/// Chunks have 16 to 256 KiB, about 64 KiB on average. The parameters are part of the format, in that
/// other ones would find fewer of the chunks that were published before.
public enum ContentChunker {
    /// The fewest bytes of a chunk that is not the last.
    public static let minimum = 16 << 10
    /// The bytes from which on cuts become more likely.
    public static let normal = 64 << 10
    /// The most bytes of a chunk.
    public static let maximum = 256 << 10

    /// Cuts are made where so many upper bits of the hash are zero: before, and after `normal`.
    private static let bits = (before: UInt64(18), after: UInt64(14))

    /// Returns the length of the first chunk of `bytes`, which are all that is left of the content or at
    /// least ``maximum``.
    public static func firstChunk(of bytes: Span<UInt8>) -> Int {
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

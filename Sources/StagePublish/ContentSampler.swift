import StageIndex

/// Chooses positions of content by the content itself: equal content has the same samples wherever it lies.
///
/// A position is chosen where the upper bits of a gear hash of the 64 bytes before it are zero. LBFS
/// (Muthitacharoen et al., SOSP 2001) cuts files by such positions, and zstd's long-distance matcher enters
/// them into its table; here they tell which content is alike.
struct ContentSampler: Sendable {
    /// A chosen position.
    struct Sample: Sendable {
        /// The hash of the bytes before the position.
        var fingerprint: UInt64
        /// The position, from the beginning of the content.
        var offset: Int
    }

    /// The bytes that a fingerprint is of.
    static let reach = 64
    /// A sample for each 256 bytes at least, on average.
    private static let finest = 8
    /// The number of samples to aim at.
    private static let target = Int64(1 << 20)

    /// One position in 2 to this power is chosen, on average.
    let bits: Int

    /// Creates a sampler whose samples of so many bytes are no more than about a million.
    init(byteCount: Int64) {
        var bits = Self.finest
        while byteCount >> Int64(bits) > Self.target { bits += 1 }
        self.bits = bits
    }

    /// Returns the samples of content in their order: about one for each 2^`bits` bytes, and no more than
    /// twice as many, and two.
    func samples(of bytes: Span<UInt8>) -> [Sample] {
        let limit = (bytes.count >> (bits - 1)) + 2
        let shift = UInt64(64 - bits)
        return unsafe GearHash.table.withUnsafeBufferPointer { gear in
            var samples: [Sample] = []
            var hash: UInt64 = 0
            for index in 0..<bytes.count {
                unsafe hash = hash << 1 &+ gear[Int(bytes[index])]
                // One number would stand for every run of a byte, and is left to mark what is empty.
                guard hash >> shift == 0, hash != 0, index + 1 >= Self.reach,
                    hash != samples.last?.fingerprint
                else { continue }
                samples.append(Sample(fingerprint: hash, offset: index + 1))
                if samples.count == limit { break }
            }
            return samples
        }
    }
}

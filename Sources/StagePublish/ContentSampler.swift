import StageIndex

/// Selects sample positions by content: equal content has the same samples wherever it is located.
///
/// A position is a sample if the upper bits of a gear hash of the 64 bytes before it are zero. LBFS
/// (Muthitacharoen et al., SOSP 2001) splits files at such positions, and zstd's long-distance matcher
/// indexes them; here they identify similar content.
struct ContentSampler: Sendable {
    /// A sample position.
    struct Sample: Sendable {
        /// The hash of the bytes before the position.
        var fingerprint: UInt64
        /// The position, from the start of the content.
        var offset: Int
    }

    /// The number of bytes that a fingerprint covers.
    static let reach = 64
    /// The finest sampling: one sample for each 256 bytes, on average.
    private static let finest = 8
    /// The approximate limit of the number of samples.
    private static let target = Int64(1 << 20)

    /// The exponent of the average distance between samples.
    let bits: Int

    /// Creates a sampler that selects at most about a million samples of `byteCount` bytes.
    init(byteCount: Int64) {
        var bits = Self.finest
        while byteCount >> Int64(bits) > Self.target { bits += 1 }
        self.bits = bits
    }

    /// Returns the samples of content, in order: on average one for each 2^`bits` bytes, at most twice as
    /// many plus two.
    func samples(of bytes: Span<UInt8>) -> [Sample] {
        let limit = (bytes.count >> (bits - 1)) + 2
        let shift = UInt64(64 - bits)
        return unsafe GearHash.table.withUnsafeBufferPointer { gear in
            var samples: [Sample] = []
            var hash: UInt64 = 0
            for index in 0..<bytes.count {
                unsafe hash = hash << 1 &+ gear[Int(bytes[index])]
                // A run of equal bytes would always have the same fingerprint, and 0 marks free slots.
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

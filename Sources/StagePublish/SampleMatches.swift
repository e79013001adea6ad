/// A hash table of sample fingerprints.
struct FingerprintTable: Sendable {
    /// A location in the older version.
    struct Location: Sendable {
        /// The slot of the sample's fingerprint.
        var slot: UInt32
        /// The address after the bytes that the fingerprint covers.
        var address: Int64
    }

    /// Open addressing with linear probing; 0 marks a free slot.
    private var slots: [UInt64]

    /// The number of slots.
    var capacity: Int { slots.count }

    /// Creates a table for `count` fingerprints.
    init(count: Int) {
        var capacity = 1024
        while capacity < count + count / 2 { capacity *= 2 }
        slots = Array(repeating: 0, count: capacity)
    }

    /// Inserts a fingerprint, and returns its slot.
    mutating func insert(_ fingerprint: UInt64) -> Int {
        let slot = slot(for: fingerprint)
        slots[slot] = fingerprint
        return slot
    }

    /// Returns the locations of samples whose fingerprints are in the table; `address` maps offsets to
    /// addresses.
    func locations(
        of samples: [ContentSampler.Sample],
        address: (_ offset: Int) -> Int64?
    ) -> [Location] {
        samples.compactMap { sample in
            let slot = slot(for: sample.fingerprint)
            guard slots[slot] != 0, let address = address(sample.offset - 1) else { return nil }
            return Location(slot: UInt32(slot), address: address + 1)
        }
    }

    /// Returns the slot that contains a fingerprint, or a free slot for it.
    private func slot(for fingerprint: UInt64) -> Int {
        let mask = slots.count - 1
        // The upper bits of fingerprints are zero, so they are hashed.
        var slot = Int(truncatingIfNeeded: (fingerprint &* 0x9E37_79B9_7F4A_7C15) >> 32) & mask
        while slots[slot] != 0, slots[slot] != fingerprint { slot = (slot + 1) & mask }
        return slot
    }
}

/// The locations in an older version of the samples of new frames.
///
/// Keeps only locations whose samples occur in new frames: up to 60 bytes for each of about a million samples
/// (``ContentSampler``) and 12 for each of two million locations, at most some 100 MB.
struct SampleMatches: Sendable {
    /// A sample of a new frame.
    struct Sample: Sendable {
        /// The offset in the frame.
        var offset: Int
        /// The addresses in the older version, at most ``perSample``.
        var addresses: [Int64]
    }

    /// The maximum number of locations that are kept for a sample: frequent samples carry little information.
    private static let perSample = 8
    /// The maximum number of locations that are kept in all.
    private static let limit = 1 << 21

    /// The sampling rule.
    let sampler: ContentSampler
    /// The fingerprints of all samples.
    let table: FingerprintTable
    /// For each slot, the number of its last location, and the number of its locations.
    private var last: [Int32]
    private var counts: [UInt8]
    /// Addresses and, for each, the number of the previous location of the same sample.
    private var addresses: [Int64] = []
    private var before: [Int32] = []
    /// The samples of each frame.
    private var samples: [Int: [(slot: UInt32, offset: UInt32)]] = [:]

    /// Creates the matches of frames without samples.
    init() {
        self.init(sampler: ContentSampler(byteCount: 0), samples: [:])
    }

    /// Adds the samples of new frames.
    init(sampler: ContentSampler, samples: [Int: [ContentSampler.Sample]]) {
        self.sampler = sampler
        var table = FingerprintTable(count: samples.values.reduce(0) { $0 + $1.count })
        for (frame, own) in samples {
            self.samples[frame] = own.map {
                (UInt32(table.insert($0.fingerprint)), UInt32($0.offset))
            }
        }
        self.table = table
        last = Array(repeating: -1, count: table.capacity)
        counts = Array(repeating: 0, count: table.capacity)
    }

    /// Adds locations; of each sample, the first ones are kept.
    mutating func add(_ locations: [FingerprintTable.Location]) {
        for location in locations {
            let slot = Int(location.slot)
            guard counts[slot] < Self.perSample, addresses.count < Self.limit else { continue }
            counts[slot] += 1
            addresses.append(location.address)
            before.append(last[slot])
            last[slot] = Int32(addresses.count - 1)
        }
    }

    /// Returns the samples of a new frame, in order.
    func samples(of frame: Int) -> [Sample] {
        (samples[frame] ?? []).map { slot, offset in
            var found: [Int64] = []
            var number = last[Int(slot)]
            while number >= 0 {
                found.append(addresses[Int(number)])
                number = before[Int(number)]
            }
            return Sample(offset: Int(offset), addresses: found)
        }
    }
}

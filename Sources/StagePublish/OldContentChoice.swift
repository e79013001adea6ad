import StageIndex

/// Chooses the old content that a new frame is compared with: the fewest locations that contain the most of
/// its samples or, without samples, the corresponding file.
struct OldContentChoice {
    /// The part of a new frame that belongs to one file.
    struct Piece {
        /// The byte range of the piece in the frame.
        var range: Range<Int>
        /// The addresses of the corresponding old file; `nil` if there is none.
        var counterpart: Range<Int64>?
    }

    /// The old content that a frame is compared with.
    struct Result {
        /// The addresses, at most the size of a window.
        var addresses = AddressSet()
        /// The address where the first piece probably comes from.
        var best: Int64?
    }

    /// A group of nearby sample locations.
    private struct LocationCluster {
        /// The addresses, including the bytes that the fingerprints cover.
        var range: Range<Int64>
        /// The numbers of the samples, each once.
        var samples: [Int]
        /// The probable address of the piece's start, computed from the first sample.
        var start: Int64
    }

    /// The maximum number of bytes that are added on each side of a location, and that are used of the counterpart of a small
    /// file.
    static let reach = Int64(256 << 10)
    /// The minimum number of bytes that are added on each side of a location.
    private static let margin = Int64(2 << 10)
    /// The distance from which locations belong to different clusters.
    private static let gap = Int64(32 << 10)

    let matches: SampleMatches
    let addresses: ContentAddresses

    /// Returns the old content that a frame is compared with.
    func oldContent(for pieces: [Piece], of frame: Int) -> Result {
        var result = Result()
        var samples = matches.samples(of: frame)[...]
        for piece in pieces.sorted(by: { $0.range.lowerBound < $1.range.lowerBound }) {
            samples = samples.drop { $0.offset <= piece.range.lowerBound }
            let own = samples.prefix { $0.offset <= piece.range.upperBound }
            let best = choose(Array(own), for: piece, addingTo: &result.addresses)
            if result.best == nil { result.best = best }
        }
        return result
    }

    /// Returns the old content around an address, with more after it, where the next frames are expected.
    func surroundings(of start: Int64, length: Int64) -> Range<Int64>? {
        guard start >= 0, start < addresses.end else { return nil }
        let file = addresses.file(at: start)
        let reach = Int64(IndexLimits.windowLength) / 4
        return max(file.lowerBound, start - reach)..<min(file.upperBound, start + length + reach)
    }

    /// Adds the locations of a piece; returns its probable start.
    private func choose(
        _ samples: [SampleMatches.Sample],
        for piece: Piece,
        addingTo found: inout AddressSet
    ) -> Int64? {
        var covered = samples.map { $0.addresses.contains { found.contains($0 - 1) } }
        var best: Int64?
        for cluster in clusters(of: samples, in: piece) {
            let gain = cluster.samples.count { !covered[$0] }
            // A single sample among many may be a coincidence, or a header common to all files of a type.
            guard gain > 1 || gain * 4 > samples.count else { continue }
            for sample in cluster.samples { covered[sample] = true }
            if best == nil { best = cluster.start }
            let reach = min(
                max(Int64(cluster.samples.count) << Int64(matches.sampler.bits + 1), Self.margin),
                Self.reach
            )
            add(
                cluster.range.lowerBound - reach..<cluster.range.upperBound + reach,
                of: cluster,
                to: &found
            )
        }
        // Changes close to each other leave few common samples even in similar content.
        guard samples.isEmpty || covered.count(where: { $0 }) * 8 < samples.count * 7 else {
            return best
        }
        if let best {
            let (file, reach) = (addresses.file(at: best), Self.reach / 4)
            let range = best - reach..<best + Int64(piece.range.count) + reach
            insert(range.clamped(to: file), into: &found)
        }
        if let counterpart = piece.counterpart { insert(counterpart, into: &found) }
        return best
    }

    /// Adds the part of a range that is within the file of a cluster.
    private func add(_ range: Range<Int64>, of cluster: LocationCluster, to found: inout AddressSet)
    {
        insert(range.clamped(to: addresses.file(at: cluster.range.upperBound - 1)), into: &found)
    }

    /// Adds addresses while the window has space.
    private func insert(_ range: Range<Int64>, into found: inout AddressSet) {
        let remaining = Int64(IndexLimits.windowLength) - found.count
        guard remaining > 0 else { return }
        found.insert(range.lowerBound..<min(range.upperBound, range.lowerBound + remaining))
    }

    /// Returns the clusters of samples, those with the most samples first; among equals, those that overlap the
    /// corresponding file first.
    private func clusters(of samples: [SampleMatches.Sample], in piece: Piece) -> [LocationCluster]
    {
        var locations: [(address: Int64, sample: Int)] = []
        for (number, sample) in samples.enumerated() {
            for address in sample.addresses { locations.append((address, number)) }
        }
        locations.sort { $0 < $1 }
        var clusters: [LocationCluster] = []
        var file: Range<Int64> = 0..<0
        var seen: Set<Int> = []
        for (address, sample) in locations {
            let isNear = clusters.last.map {
                address < $0.range.upperBound + Self.gap && address <= file.upperBound
                    && $0.range.count < Self.reach * 2
            }
            if isNear != true {
                file = addresses.file(at: address - 1)
                seen = []
                let first = max(file.lowerBound, address - Int64(ContentSampler.reach))
                let distance = Int64(samples[sample].offset - piece.range.lowerBound)
                let start = max(file.lowerBound, address - distance)
                clusters.append(LocationCluster(range: first..<address, samples: [], start: start))
            }
            let last = clusters.count - 1
            clusters[last].range = clusters[last].range.lowerBound..<address
            if seen.insert(sample).inserted { clusters[last].samples.append(sample) }
        }
        func overlapsCounterpart(_ cluster: LocationCluster) -> Bool {
            piece.counterpart?.overlaps(cluster.range) ?? false
        }
        return clusters.sorted {
            if $0.samples.count != $1.samples.count { return $0.samples.count > $1.samples.count }
            if overlapsCounterpart($0) != overlapsCounterpart($1) { return overlapsCounterpart($0) }
            return $0.range.lowerBound < $1.range.lowerBound
        }
    }
}

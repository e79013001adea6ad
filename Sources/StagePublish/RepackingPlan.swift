import StageIndex

/// Decides which bundles of earlier versions a new version repacks: it copies the frames that it uses to new bundles
/// and no longer names the old ones.
///
/// A pure value, equal for equal indexes and available bundles.
struct RepackingPlan: Equatable {
    /// The positions in the index of the bundles to repack, in ascending order.
    private(set) var bundles: [Int] = []

    /// The share of a bundle's bytes, as a fraction, below which it is repacked.
    ///
    /// With one half, each copied byte allows the removal of at least one unused byte.
    static let share = (numerator: Int64(1), denominator: Int64(2))
    /// Bundles with fewer used bytes than this count as small: a larger one needs several requests anyway.
    static let smallSize = RangePlan.length.lowerBound
    /// The largest number of small bundles that are kept.
    ///
    /// If there are more, the largest ones stay, half of this number, and the others become one bundle: otherwise every
    /// version would copy small bundles again.
    static let smallCount = 16

    /// Plans the packing of a version.
    ///
    /// - Parameters:
    ///   - index: The index of the new version.
    ///   - available: The positions of the bundles of earlier versions that can be read.
    init(for index: ContentIndex, available: some Sequence<Int>) {
        var used = [Int64](repeating: 0, count: index.bundles.count)
        for frame in index.frames { used[frame.bundle] += Int64(frame.storedLength) }
        var small: [Int] = []
        for bundle in available {
            let (numerator, denominator) = Self.share
            if used[bundle] * denominator < index.bundles[bundle].size * numerator {
                bundles.append(bundle)
            } else if used[bundle] < Self.smallSize {
                small.append(bundle)
            }
        }
        if small.count > Self.smallCount {
            small.sort { (used[$0], $0) < (used[$1], $1) }
            bundles += small.dropLast(Self.smallCount / 2)
        }
        bundles.sort()
    }
}

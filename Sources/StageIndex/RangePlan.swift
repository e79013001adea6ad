/// The byte ranges to request for a set of frames.
package struct RangePlan: Equatable, Sendable {
    /// A single request.
    package struct Request: Equatable, Sendable {
        /// The position of the bundle in the index; 0 for a delta set.
        package var bundle: Int
        /// The byte range.
        package var range: Range<Int64>
        /// The positions of the needed frames in the range, in the index or the delta set, ordered by offset.
        package var frames: [Int]
    }

    /// The requests, by bundle and offset.
    package var requests: [Request]

    /// The largest gap between needed frames, in bytes, that is requested along with them because that costs
    /// less than another request.
    package static let gap = Int64(64 << 10)
    /// The range of a request's maximum length; larger transfers use longer requests to need fewer of them.
    package static let length = Int64(4 << 20)...Int64(16 << 20)
    /// Up to this number of requests, a plan keeps the shortest maximum length and the smallest gap.
    package static let count = 8
    /// The share of the requested bytes that wider gaps may add, as a divisor.
    package static let waste = Int64(16)

    /// Plans the requests for frames, given by their positions in `index`.
    package init(_ frames: some Collection<Int>, of index: ContentIndex) {
        self.init(frames.map { (index.frames[$0].bundle, index.frames[$0].range, $0) })
    }

    /// Plans the requests for the delta frames that restore `frames`, positions in the newer index; the
    /// object starts with a table of `tableSize` bytes.
    package init(_ frames: some Collection<Int>, of deltas: DeltaSet, tableSize: Int) {
        let wanted = Set(frames)
        let ranges = deltas.ranges(afterTable: tableSize)
        let positions = deltas.frames.indices.filter { wanted.contains(deltas.frames[$0].position) }
        self.init(positions.map { (0, ranges[$0], $0) })
    }

    /// Plans one request for each bundle with some of the frames, for all of the bundle.
    package init(bundlesOf frames: some Collection<Int>, in index: ContentIndex) {
        let bundles = Dictionary(grouping: frames) { index.frames[$0].bundle }
        requests = bundles.keys.sorted().map { bundle in
            let needed = (bundles[bundle] ?? []).sorted {
                (index.frames[$0].range.lowerBound, $0) < (index.frames[$1].range.lowerBound, $1)
            }
            return Request(bundle: bundle, range: 0..<index.bundles[bundle].size, frames: needed)
        }
    }

    private init(_ frames: [(bundle: Int, range: Range<Int64>, frame: Int)]) {
        let total = frames.reduce(Int64(0)) { $0 + Int64($1.range.count) }
        let share = total / Int64(Self.count)
        let most = min(max(share, Self.length.lowerBound), Self.length.upperBound)
        let ordered = frames.sorted {
            ($0.bundle, $0.range.lowerBound, $0.frame) < ($1.bundle, $1.range.lowerBound, $1.frame)
        }
        requests = Self.requests(ordered, most: most, gap: Self.gap)
        let gaps = zip(requests, requests.dropFirst()).filter { $0.bundle == $1.bundle }
            .map { $1.range.lowerBound - $0.range.upperBound }
        // Adds up the narrowest gaps first.
        let budget = byteCount / Self.waste
        var (widest, sum) = (Self.gap, Int64(0))
        for gap in gaps.sorted().prefix(max(0, requests.count - Self.count)) {
            sum += gap
            guard sum <= budget else { break }
            widest = max(widest, gap)
        }
        let asked = byteCount
        let wider = Self.requests(ordered, most: most, gap: widest)
        // There may be many gaps of the same width.
        if wider.reduce(-asked, { $0 + Int64($1.range.count) }) <= budget { requests = wider }
    }

    private static func requests(
        _ ordered: [(bundle: Int, range: Range<Int64>, frame: Int)],
        most: Int64,
        gap: Int64
    ) -> [Request] {
        var requests: [Request] = []
        for (bundle, range, frame) in ordered {
            if let last = requests.last, last.bundle == bundle,
                range.lowerBound - last.range.upperBound <= gap,
                max(range.upperBound, last.range.upperBound) - last.range.lowerBound <= most
            {
                let end = max(range.upperBound, last.range.upperBound)
                requests[requests.count - 1].range = last.range.lowerBound..<end
                requests[requests.count - 1].frames.append(frame)
            } else {
                requests.append(Request(bundle: bundle, range: range, frames: [frame]))
            }
        }
        return requests
    }

    /// The number of requested bytes.
    package var byteCount: Int64 { requests.reduce(0) { $0 + Int64($1.range.count) } }
}

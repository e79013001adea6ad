/// Which ranges of which bundles are asked for to get a set of frames.
public struct RangePlan: Equatable, Sendable {
    /// What is asked for at once.
    public struct Request: Equatable, Sendable {
        /// The bundle, by its position in the index.
        public var bundle: Int
        /// The bytes of it.
        public var range: Range<Int64>
        /// The frames in it that are wanted, by their positions in the index, in the order of their
        /// places.
        public var frames: [Int]
    }

    /// The requests, by bundle and place.
    public var requests: [Request]

    /// The bytes that are asked for and not wanted: gaps that cost less than another request.
    public static let gap = Int64(64 << 10)
    /// The most bytes of a request: large transfers have larger ones, so that there are few.
    public static let length = Int64(4 << 20)...Int64(8 << 20)
    /// How many requests there are at most before they become larger.
    public static let count = Int64(16)

    /// Plans the requests for `frames`, positions in `index`.
    public init(_ frames: some Collection<Int>, of index: ContentIndex) {
        requests = []
        let total = frames.reduce(Int64(0)) { $0 + Int64(index.frames[$1].storedLength) }
        let most = min(max(total / Self.count, Self.length.lowerBound), Self.length.upperBound)
        let order = frames.map { (index.frames[$0].bundle, index.frames[$0].offset, $0) }.sorted(
            by: <
        )
        for (bundle, _, position) in order {
            let range = index.frames[position].range
            if let last = requests.last, last.bundle == bundle,
                range.lowerBound - last.range.upperBound <= Self.gap,
                max(range.upperBound, last.range.upperBound) - last.range.lowerBound <= most
            {
                let end = max(range.upperBound, last.range.upperBound)
                requests[requests.count - 1].range = last.range.lowerBound..<end
                requests[requests.count - 1].frames.append(position)
            } else {
                requests.append(Request(bundle: bundle, range: range, frames: [position]))
            }
        }
    }

    /// The bytes that are asked for.
    public var byteCount: Int64 { requests.reduce(0) { $0 + Int64($1.range.count) } }
}

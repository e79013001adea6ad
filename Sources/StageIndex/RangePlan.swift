/// Which ranges of which objects are asked for to get a set of frames.
public struct RangePlan: Equatable, Sendable {
    /// What is asked for at once.
    public struct Request: Equatable, Sendable {
        /// The bundle, by its position in the index; 0 for a delta set.
        public var bundle: Int
        /// The bytes of it.
        public var range: Range<Int64>
        /// The frames in it that are wanted, by their positions in the index or the delta set, in the
        /// order of their places.
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
        let total = frames.reduce(Int64(0)) { $0 + Int64(index.frames[$1].storedLength) }
        let most = min(max(total / Self.count, Self.length.lowerBound), Self.length.upperBound)
        self.init(
            frames.map { (index.frames[$0].bundle, index.frames[$0].range, $0) },
            most: most
        )
    }

    /// Plans the requests for those delta frames that make one of `frames`, positions in the newer
    /// index; the object begins with a table of `tableSize` bytes.
    ///
    /// They are half as large as those for bundles: each is held in memory, beside windows.
    public init(_ frames: some Collection<Int>, of deltas: DeltaSet, tableSize: Int) {
        let wanted = Set(frames)
        let ranges = deltas.ranges(afterTable: tableSize)
        let places = deltas.frames.indices.filter { wanted.contains(deltas.frames[$0].position) }
        let total = places.reduce(Int64(0)) { $0 + Int64(deltas.frames[$1].length) }
        let most = Self.length.lowerBound / 2
        self.init(
            places.map { (0, ranges[$0], $0) },
            most: min(max(total / Self.count, most), 2 * most)
        )
    }

    private init(_ places: [(bundle: Int, range: Range<Int64>, frame: Int)], most: Int64) {
        requests = []
        let order = places.sorted {
            ($0.bundle, $0.range.lowerBound, $0.frame) < ($1.bundle, $1.range.lowerBound, $1.frame)
        }
        for (bundle, range, frame) in order {
            if let last = requests.last, last.bundle == bundle,
                range.lowerBound - last.range.upperBound <= Self.gap,
                max(range.upperBound, last.range.upperBound) - last.range.lowerBound <= most
            {
                let end = max(range.upperBound, last.range.upperBound)
                requests[requests.count - 1].range = last.range.lowerBound..<end
                requests[requests.count - 1].frames.append(frame)
            } else {
                requests.append(Request(bundle: bundle, range: range, frames: [frame]))
            }
        }
    }

    /// The bytes that are asked for.
    public var byteCount: Int64 { requests.reduce(0) { $0 + Int64($1.range.count) } }
}

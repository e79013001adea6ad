import StageDigest
import StageModel

@testable import StageIndex

/// Indexes of packs.
///
/// - Encoding and decoding a parsed index gives an equal index, and from then on the same bytes.
/// - An index does not exceed the limits with which it was read.
/// - Each path leads to its entry; each frame lies in its bundle, and is fetched once.
enum IndexTarget: FuzzTarget {
    /// The index takes memory in proportion to these, not to what it says.
    private static let bounds = IndexBounds(fileCount: 100, installedSize: .mebibytes(16))

    static func test(_ bytes: [UInt8]) {
        let small = parsed { () throws(IndexError) in
            try ContentIndex(decoding: bytes, within: bounds)
        }
        if let small { checkBounds(small) }
        guard let index = parsed({ () throws(IndexError) in try ContentIndex(decoding: bytes) })
        else { return require(small == nil, "an index within bounds is an index") }
        require(small.map { $0 == index } ?? true, "bounds change nothing")
        let encoded = index.encoded()
        require(encoded.count <= bytes.count, "an index is written as short as it can be")
        let again = parsed { () throws(IndexError) in try ContentIndex(decoding: encoded) }
        require(again == index, "an index is written as it was read")
        require(again?.encoded() == encoded, "an index has one encoding")
        checkFrames(index)
        for (position, entry) in index.entries.enumerated().prefix(64) {
            require(index.position(of: entry.path.text.utf8) == position, "a path is found")
            guard let item = index.resolve(entry.path)?.item else {
                guard case .link = entry.kind else { fatalError("an entry is there") }
                continue
            }
            if case .file = entry.kind { require(item == .file(position), "a file is itself") }
        }
    }

    private static func checkBounds(_ index: ContentIndex) {
        require(index.fileCount <= bounds.fileCount, "there are not too many files")
        require(index.installedSize <= bounds.installedSize, "the files are not too large")
        require(index.frames.count <= bounds.frames, "there are not too many frames")
        require(index.entries.count <= bounds.entries, "there are not too many entries")
        require(index.encoded().count <= bounds.byteCount, "an index is not too large")
    }

    private static func checkFrames(_ index: ContentIndex) {
        for frame in index.frames {
            let bundle = 0...index.bundles[frame.bundle].size
            require(bundle.contains(frame.range.lowerBound), "a frame lies in its bundle")
            require(bundle.contains(frame.range.upperBound), "a frame ends in its bundle")
        }
        let difference = IndexDifference(from: index, to: index)
        _ = difference
        _ = UpdateEstimate(from: index, to: index)
        _ = UpdateEstimate(from: ContentIndex(), to: index)
        let plan = RangePlan(index.frames.indices, of: index)
        let fetched = plan.requests.flatMap(\.frames)
        require(fetched.sorted() == Array(index.frames.indices), "each frame is fetched once")
        var used = index
        used.dropUnusedBundles()
        require(used.bundles.count <= index.bundles.count, "unused bundles are dropped")
        require(used.storedSize == index.storedSize, "frames stay as they are")
    }

    static func seeds() throws -> [[UInt8]] {
        [ContentIndex().encoded(), try sample().encoded()]
    }

    /// An index with everything that an index can have.
    static func sample() throws -> ContentIndex {
        let link = try ContentPath("b/link")
        return ContentIndex(
            bundles: [
                ContentIndex.Bundle(digest: digest("old"), size: 70_000),
                ContentIndex.Bundle(digest: digest("new"), size: 5000),
            ],
            frames: [
                frame("small", 1000, compressed: 300, bundle: 1, offset: 4096),
                frame("one", 500, compressed: nil, bundle: 1, offset: 4396),
                frame("two", 1 << 20, compressed: 70_000, bundle: 0, offset: 0),
            ],
            entries: [
                try file("a", 10, .part(frame: 0, offset: 990)),
                try file("a-b", 30, .part(frame: 0, offset: 0)),
                try file("b/empty", 0, .part(frame: 0, offset: 0)),
                try file("b/large", (1 << 20) + 500, .frames([2, 1])),
                ContentIndex.Entry(path: link, kind: .link(to: try LinkTarget("../a", of: link))),
                try file("b/one", 500, .frames([1])),
                ContentIndex.Entry(path: try ContentPath("c"), kind: .directory),
            ]
        )
    }

    static func digest(_ text: String) -> Digest { Digest(of: Array(text.utf8)) }

    private static func frame(
        _ name: String,
        _ length: Int,
        compressed: Int?,
        bundle: Int,
        offset: Int64
    ) -> ContentIndex.Frame {
        ContentIndex.Frame(
            digest: digest(name),
            length: length,
            compressed: compressed.map {
                ContentIndex.Compressed(digest: digest("\(name) compressed"), length: $0)
            },
            bundle: bundle,
            offset: offset
        )
    }

    private static func file(
        _ path: String,
        _ size: Int64,
        _ content: ContentIndex.Content
    ) throws -> ContentIndex.Entry {
        let name = path == "b/one" ? "one" : path
        let file = ContentIndex.File(
            isExecutable: size == 30,
            size: size,
            digest: size == 0 ? ContentIndex.emptyDigest : digest(name),
            content: content
        )
        return ContentIndex.Entry(path: try ContentPath(path), kind: .file(file))
    }

    static let words =
        [ContentIndex.magic, [0x80, 0x80, 0x40], [0xFF, 0xFF, 0xFF, 0xFF, 0x0F]]
        + utf8("../", "a/b", "é")
}

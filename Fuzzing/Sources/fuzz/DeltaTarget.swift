import StageFrame
import StageModel

@testable import StageIndex

/// The tables of delta sets and patches, and Zstandard frames.
///
/// - A table has one encoding: writing the decoded table gives the same bytes.
/// - Its head has its length; its frames follow each other; a set or a patch that passes the check against
///   two indexes names only contents of these.
/// - No part of a patch has more bytes on either side than a decoder may keep.
/// - A frame never yields more bytes than requested, and compressing and decompressing gives the same bytes.
enum DeltaTarget: FuzzTarget {
    private static let index = try? IndexTarget.sample()

    static func test(_ bytes: [UInt8]) {
        checkTable(bytes)
        checkPatch(bytes)
        checkRuns(bytes)
        checkFrame(bytes)
    }

    private static func checkTable(_ bytes: [UInt8]) {
        let head = parsed { () throws(IndexError) in try DeltaSet.Head(decoding: bytes) }
        let short = parsed { () throws(IndexError) in
            try DeltaSet.Head(decoding: Array(bytes.prefix(DeltaSet.headLength)))
        }
        require(head == short, "the head is in the first bytes")
        guard let set = parsed({ () throws(IndexError) in try DeltaSet(decodingTable: bytes) })
        else { return }
        require(head?.tableSize == bytes.count, "the head tells the size")
        require(head?.new == set.new && head?.old == set.old, "the head tells the versions")
        require(set.encodedTable() == bytes, "a table has one encoding")
        let ranges = set.ranges(afterTable: bytes.count)
        require(
            (ranges.last?.upperBound ?? Int64(bytes.count)) - Int64(bytes.count) == set.byteCount,
            "the frames follow each other"
        )
        for window in set.windows {
            require((1...IndexLimits.windowLength).contains(window.length), "a window is bounded")
        }
        checkUse(set, tableSize: bytes.count)
    }

    private static func checkPatch(_ bytes: [UInt8]) {
        let size = parsed { () throws(IndexError) in try PatchTable.size(decodingHead: bytes) }
        let short = parsed { () throws(IndexError) in
            try PatchTable.size(decodingHead: Array(bytes.prefix(PatchTable.headLength)))
        }
        require(size == short, "the head is in the first bytes")
        guard let table = parsed({ () throws(IndexError) in try PatchTable(decoding: bytes) })
        else { return }
        require(size == bytes.count, "the head tells the size")
        require(table.encoded() == bytes, "a table has one encoding")
        require(
            max(table.windowSize, table.prefixSize) <= ManifestLimits.windowSize,
            "both sides of a part are bounded"
        )
        let end = table.ranges(afterTable: bytes.count).last?.upperBound
        let read = PatchTable.read(ofPatchWith: end ?? 0) { Array(bytes.prefix($0)) }
        require(read?.table == (table.parts.isEmpty ? nil : table), "the frames end the patch")
        guard let index else { fatalError("the sample is none") }
        let content = PatchContent(of: index, notIn: ContentIndex())
        let isUsable: Void? = parsed { () throws(IndexError) in
            try table.check(content: content, source: content)
        }
        guard isUsable != nil else { return }
        let length = table.parts.reduce(Int64(0)) { $0 + Int64($1.contentLength) }
        require(length == content.size, "the parts make the content")
        for range in table.parts.flatMap(\.prefix) {
            var count = 0
            content.forEachPiece(in: range) { count += $1.count }
            require(count == range.count, "a prefix is of pieces")
        }
    }

    /// Decodes similar runs: the first bytes are the lengths of a part, the others what its frame decompresses to.
    private static func checkRuns(_ bytes: [UInt8]) {
        guard bytes.count > 4 else { return }
        let part = PatchTable.Part(
            contentLength: max(1, Int(bytes[1]) * 16),
            runsLength: Int(bytes[0]),
            prefix: [0..<Int64(bytes[2])],
            frameLength: 1
        )
        let prefix = [UInt8](repeating: 1, count: part.prefixLength)
        let frame = Array(bytes[4...])
        let whole = restored(part, from: [frame[...]], after: prefix)
        let cut = frame.count * Int(bytes[3]) / 256
        let halves = restored(part, from: [frame[..<cut], [], frame[cut...]], after: prefix)
        require(whole == halves, "it makes no difference in which pieces a frame comes")
        guard let whole else { return }
        require(
            whole.count == max(0, frame.count - part.runsLength),
            "differences are as long as the content"
        )
    }

    private static func restored(
        _ part: PatchTable.Part,
        from pieces: [ArraySlice<UInt8>],
        after prefix: [UInt8]
    ) -> [UInt8]? {
        var decoder = SimilarRunDecoder(part)
        return parsed { () throws(IndexError) in
            var content: [UInt8] = []
            for piece in pieces {
                content += try decoder.restore(Array(piece).span, after: prefix.span)
            }
            return content
        }
    }

    private static func checkUse(_ set: DeltaSet, tableSize: Int) {
        guard let index else { fatalError("the sample is none") }
        let plan = RangePlan(set.frames.map(\.position), of: set, tableSize: tableSize)
        require(
            plan.requests.flatMap(\.frames).sorted() == Array(set.frames.indices),
            "each frame is fetched once"
        )
        let isUsable: Void? = parsed { () throws(IndexError) in
            try set.check(from: index, to: index)
        }
        guard isUsable != nil else { return }
        _ = UpdateEstimate(from: index, to: index, using: set)
        for segment in set.windows.flatMap(\.segments) {
            guard case .file(let file) = index.entries[segment.entry].kind else {
                fatalError("a window is of no file")
            }
            require(segment.offset + Int64(segment.length) <= file.size, "a window is in a file")
        }
    }

    private static func checkFrame(_ bytes: [UInt8]) {
        let size = parsed { () throws(FrameError) in
            try FrameDecompressor.contentSize(of: bytes.span)
        }
        let count = min(size ?? 100, IndexLimits.frameLength)
        var decompressor = FrameDecompressor()
        let content = parsed { () throws(FrameError) in
            try decompressor.decompress(bytes.span, to: count)
        }
        if let content { require(content.count == count, "a frame has the length asked for") }
        let prefixed = parsed { () throws(FrameError) in
            try decompressor.decompress(bytes.span, after: prefix.span, to: count)
        }
        if let prefixed { require(prefixed.count == count, "a frame has the length asked for") }
        guard bytes.count <= 4096 else { return }
        var compressor = FrameCompressor(level: 3)
        let frame = compressor.compress(bytes.span)
        let delta = compressor.compress(bytes.span, after: prefix.span)
        let back = parsed { () throws(FrameError) in
            try decompressor.decompress(frame.span, to: bytes.count)
        }
        require(back == bytes, "a frame is what was compressed")
        let restored = parsed { () throws(FrameError) in
            try decompressor.decompress(delta.span, after: prefix.span, to: bytes.count)
        }
        require(restored == bytes, "a delta frame is what was compressed")
    }

    private static let prefix: [UInt8] = Array("a window of the older version, a window".utf8)

    static func seeds() -> [[UInt8]] {
        let windows = [
            DeltaSet.Window(segments: [
                DeltaSet.Segment(entry: 1, offset: 0, length: 30),
                DeltaSet.Segment(entry: 0, offset: 3, length: 7),
            ]),
            DeltaSet.Window(segments: [DeltaSet.Segment(entry: 1, offset: 2, length: 28)]),
        ]
        // The size of the largest permitted window.
        let largest = DeltaSet.Window(segments: [
            DeltaSet.Segment(entry: 3, offset: 0, length: 1 << 20),
            DeltaSet.Segment(entry: 3, offset: 1, length: IndexLimits.windowLength - (1 << 20)),
        ])
        let frames = [
            DeltaSet.Frame(position: 1, window: 0, length: 200, digest: IndexTarget.digest("a")),
            DeltaSet.Frame(position: 0, window: 1, length: 90, digest: IndexTarget.digest("b")),
            DeltaSet.Frame(position: 2, window: 1, length: 70_000, digest: IndexTarget.digest("c")),
        ]
        let size = index.map { Int(PatchContent(of: $0, notIn: ContentIndex()).size) } ?? 1
        let patch = PatchTable(parts: [
            PatchTable.Part(
                contentLength: size,
                runsLength: size / 20,
                prefix: [0..<5, 7..<10],
                frameLength: 300
            )
        ])
        let (new, old) = (IndexTarget.digest("new"), IndexTarget.digest("old"))
        var compressor = FrameCompressor(level: 3)
        let text = Array(String(repeating: "a window of the older version ", count: 20).utf8)
        return [
            DeltaSet(new: new, old: old).encodedTable(),
            DeltaSet(new: new, old: old, windows: windows, frames: frames).encodedTable(),
            DeltaSet(new: new, old: old, windows: [largest]).encodedTable(),
            patch.encoded(),
            // Two runs, of 4 and 9 bytes, and the differences.
            [6, 4, 60, 128, 0, 4, 4, 2, 9, 80] + Array(0..<40),
            compressor.compress(text.span),
            compressor.compress(text.span, after: prefix.span),
        ]
    }

    static let words = [
        DeltaSet.magic, PatchTable.magic, [0x28, 0xB5, 0x2F, 0xFD], [0x37, 0xA4, 0x30, 0xEC],
        [0x80, 0x80, 0x40],
    ]
}

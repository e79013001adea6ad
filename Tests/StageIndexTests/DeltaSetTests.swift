import StageDigest
import StageModel
import Testing

@testable import StageIndex

/// A set from the sample to itself.
private func sampleSet() -> DeltaSet {
    func digest(_ text: String) -> Digest { Digest(of: Array(text.utf8)) }
    return DeltaSet(
        new: digest("new"),
        old: digest("old"),
        windows: [
            DeltaSet.Window(segments: [
                DeltaSet.Segment(entry: 1, offset: 0, length: 30),
                DeltaSet.Segment(entry: 0, offset: 3, length: 7),
            ]),
            DeltaSet.Window(segments: [DeltaSet.Segment(entry: 1, offset: 2, length: 28)]),
        ],
        frames: [
            DeltaSet.Frame(position: 1, window: 0, length: 200, digest: digest("one")),
            DeltaSet.Frame(position: 0, window: 1, length: 90, digest: digest("small")),
            DeltaSet.Frame(position: 2, window: 1, length: 70_000, digest: digest("two")),
        ]
    )
}

/// Expects an error for each beginning of an encoded value, and for one byte too many.
func expectWhole(_ bytes: [UInt8], decoding: ([UInt8]) throws -> Void) {
    for count in bytes.indices {
        #expect(throws: IndexError.self) { try decoding(Array(bytes.prefix(count))) }
    }
    #expect(throws: IndexError.self) { try decoding(bytes + [0]) }
}

struct DeltaSetTests {
    @Test func aTableIsDecodedAsItWasEncoded() throws {
        let set = sampleSet()
        let bytes = set.encodedTable()
        #expect(try DeltaSet(decodingTable: bytes) == set)
        #expect(set.encodedTable() == bytes)
        let head = try DeltaSet.Head(decoding: Array(bytes.prefix(DeltaSet.headLength)))
        #expect((head.new, head.old, head.tableSize) == (set.new, set.old, bytes.count))
        #expect(set.windows.map(\.length) == [37, 28])
        #expect(set.byteCount == 70_290)
        #expect(set.ranges(afterTable: 1000) == [1000..<1200, 1200..<1290, 1290..<71290])
        let index = try sampleIndex()
        #expect(throws: Never.self) { try set.check(from: index, to: index) }
    }

    /// Fewer bytes remain than the smallest window takes.
    @Test(arguments: [0, 1, 2])
    func aTableThatEndsWithinItsWindowsIsRefused(left: Int) {
        let set = sampleSet()
        // Two windows and no frames; the first window starts at a large offset.
        let rest: [UInt8] = [2, 0, 1, 0, 0x80, 0x80, 0x01, 1] + [1, 0].prefix(left)
        let bytes = DeltaSet.magic + set.new.bytes + set.old.bytes + [UInt8(rest.count)] + rest
        let what = left == 0 ? "the number of parts" : left == 1 ? "the file" : "where"
        do throws(IndexError) {
            _ = try DeltaSet(decodingTable: bytes)
            Issue.record("it was read")
        } catch {
            #expect(error.offset == bytes.count)
            #expect(error.reason.hasPrefix(what) && error.reason.hasSuffix("is truncated"))
        }
    }

    @Test func anEmptySetIsWrittenAndRead() throws {
        let set = DeltaSet(new: sampleSet().new, old: sampleSet().old)
        #expect(try DeltaSet(decodingTable: set.encodedTable()) == set)
    }

    /// A change of any byte is either an error, or a different valid set.
    @Test func everyByteMatters() throws {
        let set = sampleSet()
        let bytes = set.encodedTable()
        let index = try sampleIndex()
        var errors = 0
        for position in bytes.indices {
            for bend: UInt8 in [0x01, 0x02, 0x3F, 0x40, 0x80, 0xFF] {
                var bent = bytes
                bent[position] ^= bend
                do throws(IndexError) {
                    let other = try DeltaSet(decodingTable: bent)
                    #expect(other != set, "byte \(position) does not matter")
                    #expect(other.encodedTable() == bent)
                    try other.check(from: index, to: index)
                    #expect(other.windows.allSatisfy { $0.length <= IndexLimits.windowLength })
                } catch {
                    #expect(!error.reason.isEmpty)
                    errors += 1
                }
            }
        }
        #expect(errors > 150)
    }

    @Test func truncatedOrTrailingBytesAreAnError() throws {
        expectWhole(sampleSet().encodedTable()) { try _ = DeltaSet(decodingTable: $0) }
    }

    /// Returns the table of a set with other numbers at its start.
    private func table(_ rest: [UInt8]) -> [UInt8] {
        let set = sampleSet()
        var bytes = DeltaSet.magic + set.new.bytes + set.old.bytes
        bytes.append(number: rest.count)
        return bytes + rest
    }

    @Test func hugeNumbersAreRefused() throws {
        let huge: [UInt8] = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]
        let tables: [[UInt8]] = [
            huge + [0], [0] + huge, [1, 0] + huge, [1, 0, 1] + huge + [0, 1],
            [1, 0, 1, 0] + huge + [1], [1, 0, 1, 0, 0] + huge,
        ]
        for rest in tables {
            let bytes = table(rest + [UInt8](repeating: 0, count: 40))
            #expect(throws: IndexError.self) { try DeltaSet(decodingTable: bytes) }
        }
        var version = sampleSet().encodedTable()
        version[7] = 2
        let error = #expect(throws: IndexError.self) { try DeltaSet(decodingTable: version) }
        #expect(error?.reason.contains("version 2") == true)
    }

    @Test func windowsAreBounded() throws {
        var set = sampleSet()
        set.windows[0].segments[0].length = IndexLimits.windowLength - 7
        #expect(throws: Never.self) { try DeltaSet(decodingTable: set.encodedTable()) }
        set.windows[0].segments[0].length += 1
        #expect(throws: IndexError.self) { try DeltaSet(decodingTable: set.encodedTable()) }
    }

    /// Each window is within its limit, and all of them together have too many bytes for the frames.
    @Test func allWindowsTogetherAreBounded() throws {
        let index = try sampleIndex()
        let length = IndexLimits.windowLength
        let window = DeltaSet.Window(segments: [
            DeltaSet.Segment(entry: 0, offset: 0, length: length)
        ])
        var set = sampleSet()
        // It restores 500 bytes.
        set.frames = [set.frames[0]]
        set.windows = [DeltaSet.Window](repeating: window, count: 54)
        #expect(throws: Never.self) { try set.check(to: index) { _ in Int64(length) } }
        set.windows.append(window)
        let error = #expect(throws: IndexError.self) {
            try set.check(to: index) { _ in Int64(length) }
        }
        #expect(error?.reason == "the windows have more than \(32 * 500 + 256 << 20) bytes")
    }

    /// A reader would read each window again and again.
    @Test func alternatingWindowsAreRefused() throws {
        var set = sampleSet()
        set.frames[2].window = 0
        let error = #expect(throws: IndexError.self) {
            try DeltaSet(decodingTable: set.encodedTable())
        }
        #expect(error?.reason == "the delta frames are not in the order of their windows")
    }

    @Test func twoDeltaFramesForOneFrameAreRefused() throws {
        var set = sampleSet()
        set.frames[2].position = 1
        let error = #expect(throws: IndexError.self) {
            try DeltaSet(decodingTable: set.encodedTable())
        }
        #expect(error?.reason == "two delta frames make one frame")
    }

    @Test func aSetOfOtherVersionsIsRefused() throws {
        let index = try sampleIndex()
        for change: (inout DeltaSet) -> Void in [
            { $0.frames[0].position = 3 },
            { $0.windows[0].segments[0].length = 31 },
            { $0.windows[0].segments[0].offset = 1 },
            { $0.windows[0].segments[0].entry = index.entries.count },
            { $0.windows[0].segments[1].entry = index.entries.count - 1 },
        ] {
            var set = sampleSet()
            change(&set)
            #expect(throws: IndexError.self) { try set.check(from: index, to: index) }
        }
    }
}

struct DeltaEstimateTests {
    @Test func deltaFramesAreCountedAsDeltaBytes() throws {
        let new = try sampleIndex()
        let set = sampleSet()
        let plain = UpdateEstimate(from: ContentIndex(), to: new)
        let estimate = UpdateEstimate(from: ContentIndex(), to: new, using: set)
        #expect(estimate.bundleBytes == .zero)
        #expect(estimate.requests == 2)
        let expected = Int64(set.encodedTable().count) + set.byteCount
        #expect(estimate.deltaBytes == ByteCount(expected))
        #expect(plain.deltaBytes == .zero && plain.bundleBytes > .zero)
        #expect(estimate.changedFiles == plain.changedFiles)
    }
}

import StageDigest
import StageModel
import Testing

@testable import StageIndex

/// A table of two parts.
private func sampleTable() -> PatchTable {
    PatchTable(parts: [
        PatchTable.Part(
            contentLength: 70_000,
            runsLength: 300,
            prefix: [0..<30, 40..<70],
            frameLength: 200
        ),
        PatchTable.Part(contentLength: 90, prefix: [], frameLength: 1),
    ])
}

/// Returns the pieces of files with one frame each, of these lengths.
private func pieces(ofLengths lengths: [Int]) throws -> PatchContent {
    var index = ContentIndex()
    var entries: [ContentIndex.Entry] = []
    for (number, length) in lengths.enumerated() {
        let digest = Digest(of: Array("\(number)".utf8))
        index.frames.append(
            ContentIndex.Frame(
                digest: digest,
                length: length,
                compressed: nil,
                bundle: 0,
                offset: 0
            )
        )
        let file = ContentIndex.File(
            isExecutable: false,
            size: Int64(length),
            digest: digest,
            content: .frames([number])
        )
        entries.append(ContentIndex.Entry(path: try ContentPath("\(number)"), kind: .file(file)))
    }
    index.entries = ContentIndex.EntryList(entries)
    return PatchContent(of: index, notIn: ContentIndex())
}

struct PatchTableTests {
    @Test func aTableIsDecodedAsItWasEncoded() throws {
        let table = sampleTable()
        let bytes = table.encoded()
        #expect(try PatchTable(decoding: bytes) == table)
        #expect(try PatchTable.size(decodingHead: Array(bytes.prefix(13))) == bytes.count)
        #expect((table.windowSize, table.prefixSize) == (ByteCount(70_300), ByteCount(60)))
        #expect(table.ranges(afterTable: 100) == [100..<300, 300..<301])
        #expect(try PatchTable(decoding: PatchTable().encoded()) == PatchTable())
    }

    @Test func aPatchEndsWithItsLastFrame() {
        let table = sampleTable()
        let bytes = table.encoded()
        for (excess, isRead) in [(-1, false), (0, true), (1, false)] {
            let read = PatchTable.read(ofPatchWith: Int64(bytes.count + 201 + excess)) {
                Array(bytes.prefix($0))
            }
            #expect((read?.table == table) == isRead)
        }
    }

    /// A change of any byte is either an error, or a different valid table.
    @Test func everyByteMatters() throws {
        let table = sampleTable()
        let bytes = table.encoded()
        for position in bytes.indices {
            for bend: UInt8 in [0x01, 0x02, 0x3F, 0x40, 0x80, 0xFF] {
                var bent = bytes
                bent[position] ^= bend
                do throws(IndexError) {
                    let other = try PatchTable(decoding: bent)
                    #expect(other != table && other.encoded() == bent)
                    #expect(max(other.windowSize, other.prefixSize) <= ManifestLimits.windowSize)
                } catch {
                    #expect(!error.reason.isEmpty)
                }
            }
        }
    }

    @Test func truncatedOrTrailingBytesAreAnError() throws {
        expectWhole(sampleTable().encoded()) { try _ = PatchTable(decoding: $0) }
    }

    @Test func hugeNumbersAreRefused() throws {
        let huge: [UInt8] = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]
        let rests: [[UInt8]] = [
            huge, [1] + huge + [0, 0, 1], [1, 1] + huge + [0, 1], [1, 1, 0] + huge,
            [1, 1, 0, 1] + huge + [1, 1], [1, 1, 0, 1, 0] + huge + [1], [1, 1, 0, 0] + huge,
        ]
        for rest in rests {
            let padded = rest + [UInt8](repeating: 0, count: 40)
            let bytes = PatchTable.magic + [UInt8(padded.count)] + padded
            #expect(throws: IndexError.self) { try PatchTable(decoding: bytes) }
        }
        #expect(throws: IndexError.self) {
            try PatchTable.size(decodingHead: PatchTable.magic + huge)
        }
        var version = sampleTable().encoded()
        version[7] = 2
        let error = #expect(throws: IndexError.self) { try PatchTable(decoding: version) }
        #expect(error?.reason.contains("version 2") == true)
    }

    @Test func bothSidesOfAPartAreBounded() throws {
        let most = Int(ManifestLimits.windowSize.rawValue)
        for (content, runs, prefix, isRead) in [
            (most, 0, most, true), (most + 1, 0, most, false), (most, 0, most + 1, false),
            (0, 0, 0, false), (most - 9, 9, 0, true), (most - 9, 10, 0, false), (160, 10, 0, true),
            (159, 10, 0, false),
        ] {
            let part = PatchTable.Part(
                contentLength: content,
                runsLength: runs,
                prefix: prefix == 0 ? [] : [0..<1, 5..<Int64(prefix) + 4],
                frameLength: 1
            )
            let bytes = PatchTable(parts: [part]).encoded()
            #expect(((try? PatchTable(decoding: bytes)) != nil) == isRead)
        }
    }

    /// Each prefix is within its limit, and all of them together have too many bytes for the content.
    @Test func allPrefixesTogetherAreBounded() throws {
        let content = try pieces(ofLengths: [1 << 19, 1 << 19])
        let source = try pieces(ofLengths: [Int](repeating: 1 << 20, count: 128))
        func table(_ excess: Int64) -> PatchTable {
            PatchTable(
                parts: [128 << 20, 4 << 20 + excess].map { end in
                    PatchTable.Part(contentLength: 1 << 19, prefix: [0..<end], frameLength: 1)
                }
            )
        }
        #expect(throws: Never.self) { try table(0).check(content: content, source: source) }
        let error = #expect(throws: IndexError.self) {
            try table(1).check(content: content, source: source)
        }
        #expect(error?.reason == "the prefixes have more than \(132 << 20) bytes")
    }

    @Test(arguments: [([1 << 18, 1], true), ([1 << 18, 1, 1], false)])
    func partsAreFewForTheirContent(lengths: [Int], isAllowed: Bool) throws {
        let content = try pieces(ofLengths: lengths)
        let table = PatchTable(
            parts: lengths.map {
                PatchTable.Part(contentLength: $0, prefix: [], frameLength: 1)
            }
        )
        do throws(IndexError) {
            try table.check(content: content, source: content)
            #expect(isAllowed)
        } catch {
            #expect(!isAllowed && error.reason == "the patch has more than 2 parts")
        }
    }

    @Test func aTableOfOtherVersionsIsRefused() throws {
        let index = try sampleIndex()
        let content = PatchContent(of: index, notIn: ContentIndex())
        let source = PatchContent(of: index, firstNotIn: ContentIndex())
        #expect(content == source && content.changedCount == content.pieces.count)
        let first = content.pieces[0].length
        let rest = Int(content.size) - first
        func table(_ lengths: [Int], _ end: Int64) -> PatchTable {
            PatchTable(
                parts: lengths.map {
                    PatchTable.Part(contentLength: $0, prefix: [0..<end], frameLength: 1)
                }
            )
        }
        #expect(throws: Never.self) {
            try table([first, rest], source.size).check(content: content, source: source)
        }
        for (lengths, end) in [
            ([first, rest], source.size + 1), ([first - 1, rest + 1], 1), ([first], 1),
            ([first, rest + 1], 1), ([first, rest, first], 1), ([], 1),
        ] {
            #expect(throws: IndexError.self) {
                try table(lengths, end).check(content: content, source: source)
            }
        }
    }

    /// The pieces that the other version lacks come first, and each byte belongs to one piece.
    @Test func allPiecesOfAVersionAreInOrder() throws {
        let index = try sampleIndex()
        let same = PatchContent(of: index, firstNotIn: index)
        #expect(same.changedCount == 0 && same.changedSize == 0 && !same.pieces.isEmpty)
        #expect(PatchContent(of: index, notIn: index).pieces.isEmpty)
        var length = 0
        for (position, end) in same.ends.enumerated() {
            #expect(same.position(at: end - 1) == position)
            #expect(same.start(of: position) == end - Int64(same.pieces[position].length))
        }
        same.forEachPiece(in: 1..<same.size - 1) { length += $1.count }
        #expect(length == same.size - 2)
    }
}

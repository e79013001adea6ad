import StageDigest
import StageFrame
import StageModel
import StageTesting
import Testing

@testable import StageIndex

/// An index with every kind of entry.
func sampleIndex() throws -> ContentIndex {
    func digest(_ text: String) -> Digest { Digest(of: Array(text.utf8)) }
    func file(_ size: Int64, _ digest: Digest, _ content: ContentIndex.Content) -> ContentIndex.Kind
    {
        .file(
            ContentIndex.File(
                isExecutable: size == 30,
                size: size,
                digest: digest,
                content: content
            )
        )
    }
    let frames = [
        ContentIndex.Frame(
            digest: digest("small"),
            length: 1000,
            compressed: ContentIndex.Compressed(digest: digest("z"), length: 300),
            bundle: 1,
            offset: 4096
        ),
        ContentIndex.Frame(
            digest: digest("one"),
            length: 500,
            compressed: nil,
            bundle: 1,
            offset: 4396
        ),
        ContentIndex.Frame(
            digest: digest("two"),
            length: 1 << 20,
            compressed: ContentIndex.Compressed(digest: digest("y"), length: 70_000),
            bundle: 0,
            offset: 0
        ),
    ]
    let link = try ContentPath("b/link")
    return ContentIndex(
        bundles: [
            ContentIndex.Bundle(digest: digest("old"), size: 70_000),
            ContentIndex.Bundle(digest: digest("new"), size: 5000),
        ],
        frames: frames,
        entries: [
            ContentIndex.Entry(
                path: try ContentPath("a"),
                kind: file(10, digest("a"), .part(frame: 0, offset: 990))
            ),
            ContentIndex.Entry(
                path: try ContentPath("a-b"),
                kind: file(30, digest("ab"), .part(frame: 0, offset: 0))
            ),
            ContentIndex.Entry(
                path: try ContentPath("b/empty"),
                kind: file(0, ContentIndex.emptyDigest, .part(frame: 0, offset: 0))
            ),
            ContentIndex.Entry(
                path: try ContentPath("b/large"),
                kind: file((1 << 20) + 500, digest("l"), .frames([2, 1]))
            ),
            ContentIndex.Entry(path: link, kind: .link(to: try LinkTarget("../a", of: link))),
            ContentIndex.Entry(
                path: try ContentPath("b/one"),
                kind: file(500, digest("one"), .frames([1]))
            ),
            ContentIndex.Entry(path: try ContentPath("c"), kind: .directory),
        ]
    )
}

struct ContentIndexTests {
    @Test func anIndexIsDecodedAsItWasEncoded() throws {
        let index = try sampleIndex()
        #expect(try ContentIndex(decoding: index.encoded()) == index)
        #expect(try ContentIndex(decoding: ContentIndex().encoded()) == ContentIndex())
        #expect(index.fileCount == 6)
        #expect(index.installedSize == ByteCount(Int64((1 << 20) + 1040)))
        #expect(index.storedSize == ByteCount(Int64(70_800)))
    }

    @Test func decodingCountsTheDirectories() throws {
        let index = try sampleIndex()
        var directories = 0
        let bytes = index.encoded()
        let decoded = try ContentIndex(
            decoding: bytes,
            within: .largest,
            directories: &directories
        )
        #expect(decoded == index)
        #expect(directories == 2)
        #expect(index.directoryCount == 2)
    }

    /// A changed byte gives either a different valid index, or an error.
    @Test func everyBendOfAByteIsAnErrorOrAnotherIndex() throws {
        let index = try sampleIndex()
        let bytes = index.encoded()
        var errors = 0
        for position in bytes.indices {
            for bend: UInt8 in [0x01, 0x80, 0xFF, 0x40] {
                var bent = bytes
                bent[position] ^= bend
                do {
                    let other = try ContentIndex(decoding: bent)
                    #expect(other != index, "byte \(position) does not matter")
                    #expect(try ContentIndex(decoding: other.encoded()) == other)
                } catch {
                    #expect(!(error as IndexError).reason.isEmpty)
                    errors += 1
                }
            }
        }
        #expect(errors > 300)
    }

    @Test func truncatedOrTrailingBytesAreAnError() throws {
        try expectWhole(sampleIndex().encoded()) { try _ = ContentIndex(decoding: $0) }
    }

    /// Excessive counts allocate no memory.
    @Test func hugeNumbersAreRefused() throws {
        let head = ContentIndex.magic
        let huge: [UInt8] = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]
        for numbers in [huge + [0, 0], [0] + huge + [0], [0, 0] + huge, [0x80, 0x00, 0, 0]] {
            #expect(throws: IndexError.self) { try ContentIndex(decoding: head + numbers) }
        }
        var version = head
        version[7] = 3
        let error = #expect(throws: IndexError.self) { try ContentIndex(decoding: version) }
        #expect(error?.reason.contains("version 3") == true)
    }

    /// Paths that share nearly all bytes take three bytes each, and would expand to 300 MB.
    @Test func manyLongPathsAreRefused() throws {
        let count = 300_000
        var bytes = ContentIndex.magic + [0, 0, 0xE0, 0xA7, 0x12, 0]
        for _ in 1..<count { bytes += [0xFF, 0x07] }
        bytes += [0x80, 0x08] + [UInt8](repeating: 1, count: count - 1)
        bytes += [UInt8](repeating: UInt8(ascii: "a"), count: 1024 + count)
        let error = #expect(throws: IndexError.self) { try ContentIndex(decoding: bytes) }
        #expect(error?.reason == "the paths have more than 268435456 bytes")
    }

    @Test(arguments: ["a/x", "b/link/x", "c/x"])
    func entriesBelowFilesAndLinksAreRefused(path: String) throws {
        var index = try sampleIndex()
        index.entries.append(ContentIndex.Entry(path: try ContentPath(path), kind: .directory))
        index.entries = ContentIndex.EntryList(index.entries.sorted { $0.path < $1.path })
        #expect(throws: IndexError.self) { try ContentIndex(decoding: index.encoded()) }
    }

    /// Such a name would be truncated as a C string.
    @Test(arguments: [Array("-b".utf8), Array("/a".utf8)])
    func aZeroInAPathOrATargetIsRefused(after bytes: [UInt8]) throws {
        var index = try sampleIndex().encoded()
        let location = try #require(
            index.indices.dropLast().last { Array(index[$0...($0 + 1)]) == bytes }
        )
        index[location] = 0
        let error = #expect(throws: IndexError.self) { try ContentIndex(decoding: index) }
        #expect(error?.reason.contains("control") == true)
    }

    @Test func twoEntriesOfOneNameAreRefused() throws {
        var index = try sampleIndex()
        index.entries.append(index.entries[index.entries.count - 1])
        #expect(throws: IndexError.self) { try ContentIndex(decoding: index.encoded()) }
    }

    @Test func aLinkThatLeadsOutThroughAnotherIsRefused() throws {
        var index = ContentIndex()
        for (name, target) in [("p/a", "b/../.."), ("p/b", "../c")] {
            let path = try ContentPath(name)
            let kind = ContentIndex.Kind.link(to: try LinkTarget(target, of: path))
            index.entries.append(ContentIndex.Entry(path: path, kind: kind))
        }
        #expect(throws: IndexError.self) { try ContentIndex(decoding: index.encoded()) }
    }
}

struct FrameTests {
    private let text = Array(String(repeating: "the same again, ", count: 5000).utf8)

    @Test func aFrameDecompressesToItsContent() throws {
        var compressor = FrameCompressor(level: 19)
        var decompressor = FrameDecompressor()
        let frame = compressor.compress(text.span)
        #expect(frame.count < text.count / 20)
        #expect(try decompressor.decompress(frame.span, to: text.count) == text)
        #expect(compressor.compress(text.span) == frame)
        for count in [0, text.count - 1, text.count + 1] {
            #expect(throws: FrameError.self) { try decompressor.decompress(frame.span, to: count) }
        }
        let cut = Array(frame.dropLast())
        #expect(throws: FrameError.self) { try decompressor.decompress(cut.span, to: text.count) }
    }

    @Test func aFrameAfterAPrefixIsSmallAndNeedsIt() throws {
        let old = noise(3_000_000)
        let new = Array(old[..<1_000_000]) + text + Array(old[1_000_000...])
        var compressor = FrameCompressor(level: 19)
        var decompressor = FrameDecompressor()
        let frame = compressor.compress(new.span, after: old.span)
        #expect(frame.count < 2000)
        #expect(try decompressor.decompress(frame.span, after: old.span, to: new.count) == new)
        #expect(throws: FrameError.self) { try decompressor.decompress(frame.span, to: new.count) }
        // The prefix does not change later frames.
        let plain = compressor.compress(text.span)
        #expect(try decompressor.decompress(plain.span, to: text.count) == text)
    }

    /// The kernel would use only the part before the zero byte.
    @Test(arguments: ["aXb", "b/linX", "../X"])
    func zeroBytesInNamesAndTargetsAreRefused(marked: String) throws {
        let link = try ContentPath("b/linX")
        let index = ContentIndex(
            entries: [
                ContentIndex.Entry(path: try ContentPath("aXb"), kind: .directory),
                ContentIndex.Entry(path: link, kind: .link(to: try LinkTarget("../X", of: link))),
            ]
        )
        var bytes = index.encoded()
        #expect(try ContentIndex(decoding: bytes).entries.count == 2)
        let name = try #require(bytes.firstRange(of: Array(marked.utf8)))
        let zero = try #require(bytes[name].firstIndex(of: UInt8(ascii: "X")))
        bytes[zero] = 0
        #expect(throws: IndexError.self) { try ContentIndex(decoding: bytes) }
    }
}

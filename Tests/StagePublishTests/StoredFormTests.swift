import StageDigest
import StageIndex
import StagePublish
import StageTesting
import Testing

/// Frames are stored compressed, or uncompressed if a fast level gains nothing.
@Suite(.largeDirectory)
struct StoredFormTests {
    private let store: IndexedStore

    init() throws { store = try IndexedStore() }

    /// The stored bytes of a pack with one file of less than 64 KiB, which is one frame.
    private func storedLength(of bytes: [UInt8], _ tree: String) async throws -> Int {
        let pack = try await store.package(["file": bytes], tree) { $0.level = 19 }
        let frame = try #require(pack.index.frames.first)
        #expect(pack.index.frames.count == 1)
        #expect((frame.compressed == nil) == (frame.storedLength == bytes.count))
        return frame.storedLength
    }

    @Test("Content without repeats and with evenly distributed bytes is stored as it is")
    func noiseIsStoredAsItIs() async throws {
        #expect(try await storedLength(of: noise(60_000), "noise") == 60_000)
    }

    /// Repeats that the fast level alone misses: it skips positions after a search without matches.
    @Test(
        "A repeat in small files that do not compress is found",
        arguments: 0..<8 as Range<UInt64>
    )
    func aRepeatIsFound(seed: UInt64) async throws {
        var files: [String: [UInt8]] = [:]
        for number in 0..<4 as Range<UInt64> {
            files["\(number)"] = noise(60_000, seed: 4 * seed + number)
        }
        files["4"] = Array((files["1"] ?? [])[20_000..<23_000])
        let pack = try await store.package(files, "tree \(seed)") { $0.level = 19 }
        #expect(pack.index.frames.count == 1)
        #expect(pack.index.frames[0].length == 243_000)
        #expect(pack.index.frames[0].storedLength < 240_500)
    }

    @Test("Content that the fast level shortens is compressed at the level that was asked for")
    func textIsCompressedThoroughly() async throws {
        let lines = (0..<2000).map { "line \($0): \($0 * 7919 % 1009), \($0 * 104_729 % 977)\n" }
        let bytes = Array(lines.joined().utf8.prefix(60_000))
        let thorough = try await storedLength(of: bytes, "thorough")
        let quick = try await store.package(["file": bytes], "quick") { $0.level = 1 }
        #expect(thorough < bytes.count / 3)
        #expect(thorough < quick.index.frames[0].storedLength)
    }
}

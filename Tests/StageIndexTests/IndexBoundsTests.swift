import StageModel
import Testing

@testable import StageIndex

/// A small encoded index with a large content takes memory and directories in proportion to the manifest's
/// figures.
struct IndexBoundsTests {
    private func bounds(_ fileCount: Int, _ installedSize: Int) -> IndexBounds {
        IndexBounds(fileCount: fileCount, installedSize: ByteCount(installedSize))
    }

    /// An index of empty directories: a few bytes each, and fewer when compressed.
    private func directories(_ count: Int, below prefix: String = "") throws -> [UInt8] {
        let names = (0..<count).map { prefix + String($0 + 1_000_000) }
        let index = ContentIndex(
            entries: try names.map { name in
                ContentIndex.Entry(path: try ContentPath(name), kind: .directory)
            }
        )
        return index.encoded()
    }

    private func number(_ value: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.append(number: value)
        return bytes
    }

    @Test func directoriesAreBoundByTheNumberOfFiles() throws {
        let bomb = try directories(300_000)
        for (count, allowed) in [(0, 4096), (10, 4116)] {
            let error = #expect(throws: IndexError.self) {
                try ContentIndex(decoding: bomb, within: bounds(count, 0))
            }
            #expect(error?.reason == "more than \(count + allowed) entries")
        }
        let most = try directories(4096)
        #expect(try ContentIndex(decoding: most, within: bounds(0, 0)).entries.count == 4096)
    }

    /// Directories that are only implied by paths count too.
    @Test func impliedDirectoriesAreBoundAsWell() throws {
        let entries = try (0..<300).map { number in
            let path = (0..<20).map { "\(number)-\($0)" }.joined(separator: "/")
            return ContentIndex.Entry(path: try ContentPath(path), kind: .directory)
        }
        let bytes = ContentIndex(entries: entries.sorted { $0.path < $1.path }).encoded()
        let error = #expect(throws: IndexError.self) {
            try ContentIndex(decoding: bytes, within: bounds(0, 0))
        }
        #expect(error?.reason == "more than 4096 directories")
        #expect(try ContentIndex(decoding: bytes, within: bounds(952, 0)).entries.count == 300)
        #expect(throws: IndexError.self) {
            try ContentIndex(decoding: bytes, within: bounds(951, 0))
        }
    }

    @Test func directoriesThatEntriesShareCountOnce() throws {
        let bytes = try directories(4090, below: "a/b/c/d/e/")
        #expect(try ContentIndex(decoding: bytes, within: bounds(0, 0)).entries.count == 4090)
    }

    /// A file whose single frame is listed once for each byte: eight bytes of memory for each, and almost
    /// nothing when the index is compressed.
    @Test func aFileHasFewFramesForItsSize() throws {
        let count = 20_000_000
        let digest = [UInt8](repeating: 7, count: 32)
        var bytes = ContentIndex.magic + [1, 1, 1] + digest + [1]
        bytes += [1, 0, 0, 0] + digest
        bytes += [0, 1, UInt8(ascii: "a"), 0] + number(count) + number(count) + [0]
        bytes += [UInt8](repeating: 1, count: count - 1) + digest
        let error = #expect(throws: IndexError.self) { try ContentIndex(decoding: bytes) }
        #expect(error?.reason == "a file of \(count) bytes is made of \(count) frames")
    }

    /// An index of two files that both consist of one frame of 4 KiB, again and again.
    private func references(_ counts: [Int]) throws -> ContentIndex {
        let digest = ContentIndex.emptyDigest
        let frame = ContentIndex.Frame(
            digest: digest,
            length: 4096,
            compressed: nil,
            bundle: 0,
            offset: 0
        )
        let entries = try counts.enumerated().map { number, count in
            let file = ContentIndex.File(
                isExecutable: false,
                size: Int64(count) << 12,
                digest: digest,
                content: .frames([Int](repeating: 0, count: count))
            )
            return ContentIndex.Entry(path: try ContentPath("\(number)"), kind: .file(file))
        }
        return ContentIndex(
            bundles: [ContentIndex.Bundle(digest: digest, size: 4096)],
            frames: [frame],
            entries: entries
        )
    }

    /// Each file has few frames for its size, and all of them together have too many for the frames of the index.
    @Test func theReferencesOfAllFilesAreBound() throws {
        let most = IndexLimits.referenceCount(ofFrames: 1)
        #expect(most == 1_048_580)
        #expect(IndexLimits.referenceCount(ofFrames: 10_000_000) == 8_388_608)
        let half = most / 2
        let allowed = try references([half, most - half])
        #expect(allowed.entries.referenceCount == most)
        #expect(try ContentIndex(decoding: allowed.encoded()) == allowed)
        let bytes = try references([half, most - half + 1]).encoded()
        let error = #expect(throws: IndexError.self) { try ContentIndex(decoding: bytes) }
        #expect(error?.reason == "the files have more than \(most) references to frames")
    }

    @Test func framesAndBundlesAreBoundByTheSize() throws {
        let frames = 1_000_000
        let filler = [UInt8](repeating: 1, count: frames * 40)
        let bytes = ContentIndex.magic + [0] + number(frames) + [0] + filler
        let error = #expect(throws: IndexError.self) {
            try ContentIndex(decoding: bytes, within: bounds(5, 1 << 20))
        }
        #expect(error?.reason == "more than \(5 + 257) frames")
        let bundles = ContentIndex.magic + number(frames) + [1, 0] + filler
        let other = #expect(throws: IndexError.self) { try ContentIndex(decoding: bundles) }
        #expect(other?.reason == "more bundles than frames")
    }

    /// Each entry takes 85 bytes beside its path, which has seven.
    @Test func anIndexMustFitInMemory() throws {
        let bytes = try directories(4096)
        var limits = bounds(0, 0)
        limits.memory = ByteCount(4096 * (85 + 7))
        #expect(try ContentIndex(decoding: bytes, within: limits).entries.count == 4096)
        // Compared by the number of entries first, then with the lengths of their paths.
        for needed in [85, 85 + 7] {
            limits.memory = ByteCount(4096 * needed - 1)
            let error = #expect(throws: IndexError.self) {
                try ContentIndex(decoding: bytes, within: limits)
            }
            #expect(error?.neededMemory == ByteCount(4096 * needed))
        }
    }

    /// The memory is compared after the numbers of parts were read, where the filler that follows is no valid frame.
    @Test func framesThatDoNotFitInMemoryAreNotDecoded() throws {
        let frames = 1_000_000
        let filler = [UInt8](repeating: 255, count: frames * 40)
        let bytes = ContentIndex.magic + [0] + number(frames) + [0] + filler
        var limits = IndexBounds.largest
        limits.memory = .mebibytes(100)
        let error = #expect(throws: IndexError.self) {
            try ContentIndex(decoding: bytes, within: limits)
        }
        #expect(error?.neededMemory == ByteCount(frames * (104 + 16 + 28)))
    }

    @Test func referencesMustFitInMemory() throws {
        let index = try references([1_000_000])
        let bytes = index.encoded()
        var limits = IndexBounds.largest
        limits.memory = .mebibytes(20)
        let error = #expect(throws: IndexError.self) {
            try ContentIndex(decoding: bytes, within: limits)
        }
        let needed = try #require(error?.neededMemory)
        #expect(needed > ByteCount(1_000_000 * 28) && needed < ByteCount(1_001_000 * 28))
        limits.memory = needed
        #expect(try ContentIndex(decoding: bytes, within: limits) == index)
    }

    @Test func filesAndTheirSizeAreBound() throws {
        let bytes = try sampleIndex().encoded()
        #expect(
            try ContentIndex(decoding: bytes, within: bounds(6, (1 << 20) + 1040)) == sampleIndex()
        )
        #expect(throws: IndexError.self) {
            try ContentIndex(decoding: bytes, within: bounds(5, (1 << 20) + 1040))
        }
        #expect(throws: IndexError.self) {
            try ContentIndex(decoding: bytes, within: bounds(6, (1 << 20) + 1039))
        }
    }

    @Test func theBytesOfAnIndexAreBoundByWhatItMayHold() {
        #expect(bounds(0, 0).byteCount < 9 << 20)
        #expect(bounds(1000, 1 << 30).byteCount < 130 << 20)
        #expect(IndexBounds.largest.byteCount == IndexLimits.byteCount)
    }
}

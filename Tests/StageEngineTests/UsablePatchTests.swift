import StageDigest
import StageIndex
import StageModel
import Testing

@testable import StageEngine

/// The memory that decoding a patch takes.
struct UsablePatchTests {
    /// A frame of 65 MiB may have a window of 128 MiB, which its decompressor allocates.
    @Test func theWindowOfAPartIsRoundedUp() {
        for (length, window) in [(1024, 1024), (64 << 20, 64 << 20), (65 << 20, 128 << 20)] {
            let part = PatchTable.Part(
                contentLength: length - 60,
                runsLength: 60,
                prefix: [5..<1005],
                frameLength: 1
            )
            #expect(
                UsablePatch.memory(for: part) == .mebibytes(32) + ByteCount(window + 60 + 1000)
            )
        }
    }

    @Test func theDeclaredWindowIsRoundedUp() throws {
        let length = 1 << 20
        let frames = (0..<65).map { number in
            ContentIndex.Frame(
                digest: Digest(of: [UInt8(number)]),
                length: length,
                compressed: nil,
                bundle: 0,
                offset: Int64(number * length)
            )
        }
        let digest = Digest(of: [])
        let file = ContentIndex.File(
            isExecutable: false,
            size: Int64(65 * length),
            digest: digest,
            content: .frames(Array(frames.indices))
        )
        let index = ContentIndex(
            bundles: [ContentIndex.Bundle(digest: digest, size: Int64(65 * length))],
            frames: frames,
            entries: [ContentIndex.Entry(path: try ContentPath("file"), kind: .file(file))]
        )
        let patch = UsablePatch(
            reference: PackIndex.Patch(
                url: "p/patch",
                size: ByteCount(1000),
                digest: digest,
                windowSize: .mebibytes(65),
                prefixSize: .zero
            ),
            content: PatchContent(of: index, notIn: ContentIndex()),
            source: PatchContent(of: ContentIndex(), firstNotIn: index)
        )
        // The encoded runs are at most a sixteenth of the declared window.
        #expect(patch.memory == .mebibytes(32 + 128) + ByteCount((65 << 20) / 16))
    }
}

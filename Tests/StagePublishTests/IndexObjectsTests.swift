import StageDigest
import StageIndex
import StageModel
import Testing

@testable import StagePublish

struct IndexObjectsTests {
    /// An index of one file that consists of one frame of 4 KiB, again and again.
    private func index(references count: Int) throws -> ContentIndex {
        let digest = Digest(of: [])
        let file = ContentIndex.File(
            isExecutable: false,
            size: Int64(count) * 4096,
            digest: digest,
            content: .frames([Int](repeating: 0, count: count))
        )
        return ContentIndex(
            bundles: [ContentIndex.Bundle(digest: digest, size: 4096)],
            frames: [
                ContentIndex.Frame(
                    digest: digest,
                    length: 4096,
                    compressed: nil,
                    bundle: 0,
                    offset: 0
                )
            ],
            entries: [ContentIndex.Entry(path: try ContentPath("file"), kind: .file(file))]
        )
    }

    /// The limits of the publisher are those of clients.
    @Test func referencesBeyondTheLimitOfClientsAreRefused() throws {
        let most = IndexLimits.referenceCount(ofFrames: 1)
        let allowed = try index(references: most)
        #expect(throws: Never.self) { try IndexObjects(of: allowed).checkLimits() }
        #expect(throws: Never.self) { try ContentIndex(decoding: allowed.encoded()) }
        let refused = try index(references: most + 1)
        #expect(
            throws: PackagingError.overLimit(
                ValueError(
                    expected: "at most \(most) references of all files to frames",
                    found: "\(most + 1)"
                )
            )
        ) { try IndexObjects(of: refused).checkLimits() }
        #expect(throws: IndexError.self) { try ContentIndex(decoding: refused.encoded()) }
    }
}

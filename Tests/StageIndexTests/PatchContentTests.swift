import StageDigest
import StageIndex
import StageModel
import Testing

/// The pieces that a patch contains, and those that it refers to.
struct PatchContentTests {
    private func digest(_ number: Int) -> Digest { Digest(of: Array("\(number)".utf8)) }

    /// Returns an index of files of one byte, of which those with equal numbers have equal content.
    private func index(ofFiles numbers: [Int]) throws -> ContentIndex {
        let length = numbers.count
        return ContentIndex(
            bundles: [ContentIndex.Bundle(digest: digest(-1), size: Int64(length))],
            frames: [
                ContentIndex.Frame(
                    digest: digest(-2),
                    length: length,
                    compressed: nil,
                    bundle: 0,
                    offset: 0
                )
            ],
            entries: try numbers.enumerated().map { position, number in
                let file = ContentIndex.File(
                    isExecutable: false,
                    size: 1,
                    digest: digest(number),
                    content: .part(frame: 0, offset: position)
                )
                let path = try ContentPath("\(100_000 + position)")
                return ContentIndex.Entry(path: path, kind: .file(file))
            }
        )
    }

    /// Of many pieces, some have hashes that meet in the table of the other version's.
    @Test func piecesThatTheOtherVersionLacksComeFirst() throws {
        let old = try index(ofFiles: (0..<2000).map { 1499 - $0 % 1500 })
        let new = try index(ofFiles: Array(700..<3000))
        let source = PatchContent(of: old, firstNotIn: new)
        #expect(source.pieces.map(\.entry) == Array(800..<1500) + Array(0..<800))
        #expect(source.changedCount == 700 && source.size == 1500)
        #expect(source.digests == (0..<700).reversed().map { digest($0) })
        let content = PatchContent(of: new, notIn: old)
        #expect(content.pieces.map(\.entry) == Array(800..<2300))
        #expect(content.digests == (1500..<3000).map { digest($0) })
    }
}

import StageDigest
import StageModel
import StageTesting
import Testing

@testable import StageIndex

/// The packed entries of an index.
struct EntryListTests {
    @Test func anEntryIsWhatWasAdded() throws {
        let entries = Array(try sampleIndex().entries)
        let list = ContentIndex.EntryList(entries)
        #expect(Array(list) == entries)
        for (position, entry) in entries.enumerated() {
            #expect(list.path(at: position) == entry.path)
            #expect(Array(list.pathBytes(at: position)) == Array(entry.path.text.utf8))
            #expect(list.kind(at: position) == entry.kind)
            #expect(list.isDirectory(at: position) == (entry.kind == .directory))
            if case .file(let file) = entry.kind {
                #expect(list.file(at: position) == file)
            } else {
                #expect(list.file(at: position) == nil)
            }
        }
    }

    /// Random lists, whose entries are read individually and in any order.
    @Test(arguments: [1, 2, 3, 4] as [UInt64])
    func listsOfAllKindsComeBack(seed: UInt64) throws {
        var generator = SeededGenerator(seed: seed)
        var entries: [ContentIndex.Entry] = []
        for number in 0..<200 {
            let name = String(repeating: "ä", count: Int.random(in: 1...40, using: &generator))
            let path = try ContentPath("\(number)/\(name)")
            entries.append(ContentIndex.Entry(path: path, kind: try kind(of: path, &generator)))
        }
        let list = ContentIndex.EntryList(entries)
        #expect(list.count == entries.count)
        for position in entries.indices.shuffled(using: &generator) {
            #expect(list[position] == entries[position])
        }
        #expect(ContentIndex.EntryList(entries.dropLast()) != list)
    }

    private func kind(
        of path: ContentPath,
        _ generator: inout SeededGenerator
    ) throws -> ContentIndex.Kind {
        switch Int.random(in: 0..<4, using: &generator) {
        case 0: return .directory
        case 1: return .link(to: try LinkTarget("../\(path)", of: path))
        case let other:
            let frames = (0..<Int.random(in: 0..<5, using: &generator)).map { _ in
                Int.random(in: 0..<Int(Int32.max), using: &generator)
            }
            let content: ContentIndex.Content =
                other == 2 ? .frames(frames) : .part(frame: frames.first ?? 0, offset: 1 << 20)
            return .file(
                ContentIndex.File(
                    isExecutable: Bool.random(using: &generator),
                    size: Int64.random(in: 0...Int64.max, using: &generator),
                    digest: Digest(of: Array(path.text.utf8)),
                    content: content
                )
            )
        }
    }
}

import StageDigest
import StageIndex
import StageModel
import Testing

/// Indexes without the digests that follow from the content of a patch.
struct OmittedDigestsTests {
    private func digest(_ text: String) -> Digest { Digest(of: Array(text.utf8)) }

    /// Returns a file whose content is known by a name.
    private func file(
        _ size: Int64,
        named name: String,
        at content: ContentIndex.Content,
        isExecutable: Bool = false
    ) -> ContentIndex.Kind {
        .file(
            ContentIndex.File(
                isExecutable: isExecutable,
                size: size,
                digest: size == 0 ? Digest(of: []) : digest(name),
                content: content
            )
        )
    }

    /// Returns an index of frames, every other one compressed, that lie in one bundle.
    private func index(
        frames: [(name: String, length: Int)],
        entries: [(path: String, kind: ContentIndex.Kind)]
    ) throws -> ContentIndex {
        var offset = Int64(0)
        var made: [ContentIndex.Frame] = []
        for (position, frame) in frames.enumerated() {
            let compressed = ContentIndex.Compressed(
                digest: digest("stored \(frame.name)"),
                length: frame.length / 2
            )
            made.append(
                ContentIndex.Frame(
                    digest: digest(frame.name),
                    length: frame.length,
                    compressed: position % 2 == 0 ? compressed : nil,
                    bundle: 0,
                    offset: offset
                )
            )
            offset += Int64(made[position].storedLength)
        }
        return ContentIndex(
            bundles: [ContentIndex.Bundle(digest: digest("bundle"), size: offset)],
            frames: made,
            entries: try entries.map {
                ContentIndex.Entry(path: try ContentPath($0.path), kind: $0.kind)
            }
        )
    }

    private func older() throws -> ContentIndex {
        try index(
            frames: [("old parts", 200), ("kept frame", 900)],
            entries: [
                ("d", file(60, named: "kept part", at: .part(frame: 0, offset: 0))),
                ("gone", file(140, named: "gone", at: .part(frame: 0, offset: 60))),
                ("i", file(900, named: "kept frame", at: .frames([1]))),
            ]
        )
    }

    /// A version with parts of frames, files of one frame and of several, equal files and content at two places.
    private func newer() throws -> ContentIndex {
        let link = try ContentPath("j")
        return try index(
            frames: [
                ("parts", 300), ("one", 5000), ("first", 7000), ("second", 8000),
                ("more parts", 90), ("kept frame", 900),
            ],
            entries: [
                ("a", file(100, named: "a", at: .part(frame: 0, offset: 0), isExecutable: true)),
                ("b", file(100, named: "a", at: .part(frame: 0, offset: 0))),
                ("c", file(50, named: "twice", at: .part(frame: 0, offset: 100))),
                ("d", file(60, named: "kept part", at: .part(frame: 0, offset: 150))),
                ("e", file(0, named: "", at: .part(frame: 0, offset: 0))),
                ("f", file(5000, named: "one", at: .frames([1]), isExecutable: true)),
                ("g", file(20_000, named: "several", at: .frames([2, 3, 1]))),
                ("h", file(50, named: "twice", at: .part(frame: 4, offset: 0))),
                ("i", file(900, named: "kept frame", at: .frames([5]))),
                ("j", .link(to: try LinkTarget("a", of: link))),
                ("k", .directory),
                ("l", file(40, named: "l", at: .part(frame: 4, offset: 50))),
            ]
        )
    }

    /// Returns the paths of the files whose digests are omitted.
    private func omittedFiles(of index: ContentIndex) -> [String] {
        index.entries.compactMap { entry in
            guard case .file(let file) = entry.kind, file.digest == .omitted else { return nil }
            return entry.path.text
        }
    }

    @Test func onlyDigestsOfNewContentAtOneOffsetAreOmitted() throws {
        let (old, new) = (try older(), try newer())
        let index = new.omittingDigests(notIn: old)
        #expect(omittedFiles(of: index) == ["a", "b", "f", "l"])
        let omittedFrames = index.frames.indices.filter { index.frames[$0].digest == .omitted }
        #expect(omittedFrames == [1, 2, 3])
        let decoded = try ContentIndex(decoding: index.encoded())
        #expect(omittedFiles(of: decoded) == ["a", "b", "f", "l"])
        #expect(decoded.encoded() == index.encoded())
        #expect(index.encoded().count == new.encoded().count)
        // All else is the same.
        #expect(index.bundles == new.bundles)
        #expect(index.frames.map(\.compressed) == new.frames.map(\.compressed))
        #expect(index.entries.map(\.path) == new.entries.map(\.path))
    }

    @Test func theContentOfThePatchIsTheSame() throws {
        let (old, new) = (try older(), try newer())
        let whole = PatchContent(of: new, notIn: old)
        let names = ["a", "twice", "one", "first", "second", "l"]
        #expect(whole.digests == names.map { digest($0) })
        let index = try ContentIndex(decoding: new.omittingDigests(notIn: old).encoded())
        let content = PatchContent(of: index, notIn: old)
        let digests = names.map { $0 == "twice" ? digest($0) : .omitted }
        #expect(content.digests == digests)
        #expect(content.ends == whole.ends && content.changedCount == whole.changedCount)
        #expect(content.pieces == whole.pieces)
    }

    @Test func theDigestsOfThePiecesRestoreTheIndex() throws {
        let (old, new) = (try older(), try newer())
        let digests = PatchContent(of: new, notIn: old).digests
        let index = try ContentIndex(decoding: new.omittingDigests(notIn: old).encoded())
        let content = PatchContent(of: index, notIn: old)
        #expect(index.encoded(restoring: digests, of: content) == new.encoded())
        // Each digest counts, except for that of a piece whose digest was not omitted.
        for position in digests.indices {
            var others = digests
            others[position] = digest("other")
            let wrong = index.encoded(restoring: others, of: content)
            #expect((wrong == new.encoded()) == (position == 1))
        }
    }

    @Test func nothingIsOmittedWithoutNewContent() throws {
        let new = try newer()
        #expect(new.omittingDigests(notIn: new) == new)
        let content = PatchContent(of: new, notIn: new)
        #expect(new.encoded(restoring: [], of: content) == new.encoded())
    }
}

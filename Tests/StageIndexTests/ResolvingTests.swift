import StageModel
import Testing

@testable import StageIndex

/// The resolution of paths in the tree of an index, links included.
struct ResolvingTests {
    private static let links = [
        "to-file": "d/f", "to-dir": "d", "d/up": "../e", "d/e/back": "../../to-dir",
        "dangling": "nowhere", "through-file": "f/x", "dots": "./d/./e/..", "chain": "to-dir/up/g",
    ]

    private static func index() throws -> ContentIndex {
        func entry(_ path: String, _ kind: ContentIndex.Kind) throws -> ContentIndex.Entry {
            ContentIndex.Entry(path: try ContentPath(path), kind: kind)
        }
        let digest = Digest(bytes: [UInt8](repeating: 0, count: Digest.byteCount))
        let file = ContentIndex.Kind.file(
            ContentIndex.File(
                isExecutable: false,
                size: 0,
                digest: digest,
                content: .part(frame: 0, offset: 0)
            )
        )
        var entries = try ["f", "d/f", "d-f", "d/e/f", "e/g", "\u{E9}", "e\u{301}"]
            .map { try entry($0, file) }
        entries.append(try entry("empty", .directory))
        for (path, target) in links {
            let link = try LinkTarget(target, of: ContentPath(path))
            entries.append(try entry(path, .link(to: link)))
        }
        return ContentIndex(entries: entries.sorted { $0.path < $1.path })
    }

    @Test(
        arguments: [
            ("f", "f"), ("d/f", "d/f"), ("d-f", "d-f"), ("d/e/f", "d/e/f"), ("d", "/"),
            ("empty", "/"), ("d/e", "/"), ("g", nil), ("d/g", nil), ("f/x", nil), ("empty/x", nil),
            ("to-file", "d/f to-file"), ("to-dir", "/ to-dir"), ("to-dir/f", "d/f to-dir"),
            ("d/up/g", "e/g d/up"), ("to-dir/up/g", "e/g to-dir d/up"), ("dangling", nil),
            ("through-file", nil), ("dots", "/ dots"), ("dots/f", "d/f dots"),
            ("chain", "e/g chain to-dir d/up"),
            ("d/e/back/e/back/f", "d/f d/e/back to-dir d/e/back to-dir"),
            ("\u{E9}", "\u{E9}"), ("e\u{301}", "e\u{301}"), ("to-file/x", nil), ("e", "/"),
            ("to", nil), ("emp", nil),
        ] as [(String, String?)]
    )
    func aPathLeadsWhereTheKernelWouldGo(path: String, expected: String?) throws {
        let index = try Self.index()
        let found = index.resolve(try ContentPath(path)).map { found in
            let location =
                if case .file(let position) = found.item { index.entries[position].path.text } else
                {
                    "/"
                }
            return ([location] + found.links.map { index.entries[$0].path.text })
                .joined(separator: " ")
        }
        // Compared by bytes: two of the names are equal in Unicode.
        #expect(found.map { Array($0.utf8) } == expected.map { Array($0.utf8) })
    }

    @Test func aWayThroughTooManyLinksLeadsNowhere() throws {
        var entries = [try #require(try Self.index().entries.first { $0.path.text == "f" })]
        for number in 10...60 {
            let path = try ContentPath("l\(number)")
            let target = number == 10 ? "f" : "l\(number - 1)"
            entries.append(
                ContentIndex.Entry(path: path, kind: .link(to: try LinkTarget(target, of: path)))
            )
        }
        let index = ContentIndex(entries: entries)
        #expect(index.resolve(try ContentPath("l49"))?.links.count == 40)
        #expect(index.resolve(try ContentPath("l50")) == nil)
    }
}

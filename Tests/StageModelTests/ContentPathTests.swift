import StageModel
import Testing

@Suite struct ContentPathTests {
    static func deep(_ depth: Int) -> String {
        Array(repeating: "d", count: depth).joined(separator: "/")
    }

    /// Returns a path of `length` bytes with components of at most 100 bytes.
    static func long(_ length: Int) -> String {
        let part = String(repeating: "x", count: 99) + "/"
        let text = String(repeating: part, count: length / 100 + 1).prefix(length)
        return text.hasSuffix("/") ? text.dropLast() + "x" : String(text)
    }

    @Test(arguments: [
        "a", "a/b", "...", ".a", "a.", "..a", "a b", "Übergröße", "日本/語", "a:b", "a~", "-a",
        "👩‍🚀.png",
        String(repeating: "x", count: 255), String(repeating: "ä", count: 127), deep(32),
        long(1024),
    ])
    func pathsThatKeepTheRulesAreTaken(text: String) throws {
        #expect(try ContentPath(text).text == text)
        #expect(try ContentPath.normalizing(text)?.text == text)
    }

    @Test(arguments: [
        "", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/..", "../a", "a/../b", "a\\b",
        "a\u{0}b", "a\nb", "a\u{7F}", "a\u{85}", "a\u{202E}b", "a\u{2066}b", "a\u{200F}",
        "a\u{2028}", String(repeating: "x", count: 256), String(repeating: "ä", count: 128),
        deep(33),
        long(1025),
    ])
    func otherPathsAreRefused(text: String) {
        #expect(throws: ValueError.self) { try ContentPath(text) }
    }

    @Test(arguments: [
        (".", nil), ("./", nil), ("./a", "a"), ("a/", "a"), ("./a/", "a"), (".a/", ".a"),
        ("./.a", ".a"),
    ])
    func namesWrittenByTarAreNormalized(name: String, path: String?) throws {
        #expect(try ContentPath.normalizing(name)?.text == path)
    }

    @Test(arguments: ["", "/", "//", "././a", ".//a", "a//", "..", "../", "./..", "./../a"])
    func namesThatTarNeverWritesAreRefused(name: String) {
        #expect(throws: ValueError.self) { try ContentPath.normalizing(name) }
    }

    /// Names are bytes to the file system.
    @Test func canonicallyEquivalentPathsAreDifferent() throws {
        let composed = try ContentPath("caf\u{E9}")
        let decomposed = try ContentPath("cafe\u{301}")
        #expect(composed != decomposed && Set([composed, decomposed, composed]).count == 2)
        let entry = try ContentEntry.validate(
            name: composed.text,
            claim: .hardLink(target: decomposed.text),
            mode: 0o644
        )
        #expect(entry?.kind == .copy(of: decomposed) && entry?.kind != .copy(of: composed))
    }

    @Test func partsOfAPath() throws {
        let path = try ContentPath("a/bc/d")
        #expect(path.components == ["a", "bc", "d"])
        #expect(path.parent == (try ContentPath("a/bc")))
        #expect(try ContentPath("a").parent == nil)
    }
}

@Suite struct ContentLinksTests {
    static func fault(_ links: [(String, String)]) throws -> String? {
        var all = ContentLinks()
        for (path, target) in links {
            let path = try ContentPath(path)
            all.add(path, to: try LinkTarget(target, of: path))
        }
        return all.firstFault()?.path
    }

    @Test(arguments: [
        [("a", "b")], [("a", ".")], [("a/b", "..")], [("a/b", "../c/./d")], [("a", "b/../c/")],
        [("a", "b"), ("b", "c"), ("c", "d/e")],
        [("d/e", "../x"), ("a", "d/e/../y")],
        [("x/b", ".."), ("a", "x/b/x/b")],
    ])
    func linksThatStayInsideAreTaken(links: [(String, String)]) throws {
        #expect(try Self.fault(links) == nil)
    }

    @Test(arguments: [
        [("x/b", ".."), ("a", "x/b/..")],
        [("a", "x/b/.."), ("x/b", "..")],
        [("x/b", "../y/c"), ("y/c", "../x/.."), ("a", "x/b/z/../..")],
        [("a", "a")], [("a", "b"), ("b", "a")], [("a", "b/c"), ("b", "a")],
    ])
    func linksThatLeaveTogetherOrGoInCirclesAreFound(links: [(String, String)]) throws {
        #expect(try Self.fault(links) != nil)
    }

    @Test func aChainOfLinksHasALimit() throws {
        let chain = (0..<60).map { ("l\($0)", "l\($0 + 1)") }
        #expect(try Self.fault(chain) == "l0")
        #expect(try Self.fault(Array(chain.suffix(39))) == nil)
    }

    @Test(arguments: ["", "/a", "..", "a/../..", "a\\b", "a\u{1B}", "../b/../../c"])
    func targetsThatLeaveByThemselvesAreRefused(target: String) throws {
        let path = try ContentPath("l")
        #expect(throws: ValueError.self) { try LinkTarget(target, of: path) }
    }
}

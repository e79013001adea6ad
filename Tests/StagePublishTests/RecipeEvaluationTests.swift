import Glibc
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.directory) struct RecipeEvaluationTests {
    /// A tree with files for every selector.
    private func tree() throws -> SourceTree {
        let tree = try SourceTree()
        try tree.file("a/one.txt", "1")
        try tree.file("a/two.png", "22")
        try tree.file("a/deep/three.png", "333")
        try tree.file("a/deep/.DS_Store", "x")
        try tree.file("b/run", "#!", mode: 0o700)
        try tree.link("b/link", to: "../a/one.txt")
        try tree.directory("empty/inner")
        try tree.file("top.png", "t")
        return tree
    }

    @Test(arguments: [
        (#"{"file": "a/one.txt"}"#, ["a/", "a/one.txt"]),
        (#"{"file": "b/link"}, {"file": "a/one.txt"}"#, ["a/", "a/one.txt", "b/", "b/link@"]),
        (
            #"{"directory": "a"}"#,
            ["a/", "a/deep/", "a/deep/.DS_Store", "a/deep/three.png", "a/one.txt", "a/two.png"]
        ),
        (#"{"directory": "empty"}"#, ["empty/", "empty/inner/"]),
        (#"{"filePattern": "*.png"}"#, ["top.png"]),
        (
            #"{"filePattern": "**/*.png"}"#,
            ["a/", "a/deep/", "a/deep/three.png", "a/two.png", "top.png"]
        ),
        (#"{"filePattern": "a/t*"}"#, ["a/", "a/two.png"]),
        (#"{"filePattern": "b/*"}"#, ["b/", "b/link@", "b/run*"]),
        (#"{"fileSource": "b/run", "fileDestination": "bin/go"}"#, ["bin/", "bin/go*"]),
        (
            #"{"directorySource": "a/deep", "directoryDestination": "x/y"}"#,
            ["x/", "x/y/", "x/y/.DS_Store", "x/y/three.png"]
        ),
        (
            #"{"directorySource": "./a/../a/deep", "directoryDestination": "."}"#,
            [".DS_Store", "three.png"]
        ),
        (
            #"{"directory": "a"}, {"fileExclusion": "**/.DS_Store"}"#,
            ["a/", "a/deep/", "a/deep/three.png", "a/one.txt", "a/two.png"]
        ),
        (
            #"{"fileExclusion": "a/deep"}, {"filePattern": "**/*.png"}"#,
            ["a/", "a/two.png", "top.png"]
        ),
        (#"{"file": "top.png"}, {"filePattern": "*.png"}"#, ["top.png"]),
    ])
    func selectorsSelect(selectors: String, expected: [String]) throws {
        #expect(try tree().names(selectors) == expected)
    }

    @Test func sourcesAreRelativeToTheRoot() throws {
        let tree = try tree()
        #expect(try tree.names(#"{"file": "one.txt"}"#, root: "a") == ["one.txt"])
        let outside = #"{"fileSource": "../b/run", "fileDestination": "run"}"#
        #expect(try tree.names(outside, root: "a") == ["run*"])
        #expect(
            try tree.names(#"{"directory": "."}"#, root: "a/deep") == [".DS_Store", "three.png"]
        )
        let absolute = tree.path.appending("empty").string
        #expect(try tree.names(#"{"directory": "."}"#, root: absolute) == ["inner/"])
    }

    @Test func figuresAreThoseOfAManifest() throws {
        let evaluation = try tree().evaluate(#"{"directory": "a"}, {"filePattern": "b/*"}"#)
        #expect(evaluation.fileCount == 6)
        #expect(evaluation.installedSize == ByteCount(9))
        #expect(evaluation.sizes["a/deep/three.png"] == 3)
        #expect(evaluation.sizes["b/link"] == 0)
        #expect(evaluation.warnings.isEmpty)
    }

    @Test func everySelectorThatSelectsNothingIsNamed() throws {
        let tree = try tree()
        #expect(
            throws: PackagingError.nothingSelected([
                "fileSelectors[0]: file 'no'", "fileSelectors[1]: directory 'no/where'",
                "fileSelectors[3]: filePattern '*.jpg'",
                "fileSelectors[4]: fileSource '../no'", "fileSelectors[5]: directorySource 'no'",
                "fileSelectors[6]: file 'b/run'",
            ])
        ) {
            try tree.evaluate(
                """
                {"file": "no"}, {"directory": "no/where"}, {"file": "top.png"},
                {"filePattern": "*.jpg"}, {"fileSource": "../no", "fileDestination": "x"},
                {"directorySource": "no", "directoryDestination": "y"}, {"file": "b/run"},
                {"fileExclusion": "b/run"}, {"fileExclusion": "no"}
                """
            )
        }
    }

    @Test(arguments: [
        (
            #"{"file": "top.png"}, {"fileSource": "a/two.png", "fileDestination": "top.png"}"#,
            "top.png", "top.png", "a/two.png"
        ),
        (
            #"{"fileSource": "b/run", "fileDestination": "a"}, {"file": "a/one.txt"}"#,
            "a", "b/run", "a/one.txt"
        ),
        (
            #"{"fileSource": "b/link", "fileDestination": "a/x"}, {"directory": "a"}, "#
                + #"{"fileSource": "top.png", "fileDestination": "a/x"}"#,
            "a/x", "b/link", "top.png"
        ),
    ])
    func twoSourcesForOneDestinationAreRefused(
        selectors: String,
        path: String,
        first: String,
        second: String
    ) throws {
        let tree = try tree()
        #expect(
            throws: PackagingError.collision(
                path: try ContentPath(path),
                first: first,
                second: second
            )
        ) { try tree.evaluate(selectors) }
    }

    @Test(arguments: [
        ("x", "/etc/passwd"), ("x", "../out"), ("x", "d/../../out"), ("d/x", "../../out"),
    ])
    func linksThatLeadOutsideAreRefused(name: String, target: String) throws {
        let tree = try SourceTree()
        try tree.file("d/file")
        try tree.link(name, to: target)
        #expect(throws: PackagingError.self) { try tree.names(#"{"directory": "."}"#) }
    }

    @Test func aLinkThatLeadsOutThroughAnotherIsRefused() throws {
        let tree = try SourceTree()
        try tree.link("here", to: ".")
        try tree.link("inside", to: "here/d")
        try tree.file("d/file")
        #expect(try tree.names(#"{"directory": "."}"#).count == 4)
        try tree.link("outside", to: "here/../d")
        #expect(
            throws: PackagingError.notAllowed([
                RefusedSource(
                    source: "outside",
                    fault: ValueError(
                        expected: "a link that stays inside the pack",
                        text: "here/../d"
                    )
                )
            ])
        ) { try tree.names(#"{"directory": "."}"#) }
    }

    @Test func linksThatTakeLongToFollowAreRefused() throws {
        var links = ContentLinks()
        let deep = Array(repeating: "0123456789abcdef/..", count: 30).joined(separator: "/")
        for number in 1..<39 {
            links.add(try ContentPath("c\(number)"), to: try target("c\(number + 1)/\(deep)"))
        }
        for number in 0..<1000 {
            links.add(try ContentPath("link\(number)"), to: try target("c1"))
        }
        let fault = try #require(links.firstFault()).fault
        #expect(fault.expected == "links that lead through fewer other links")
    }

    private func target(_ text: String) throws -> LinkTarget {
        try LinkTarget(text, of: try ContentPath("link"))
    }

    @Test func anExclusionHoldsForSelectorsBelowIt() throws {
        let tree = try SourceTree()
        try tree.file("a/kept")
        try tree.file("a/secret/key")
        try tree.file("a/secret/sub/more")
        let selectors =
            #"{"directory": "a"}, {"file": "a/secret/key"}, {"directory": "a/secret/sub"}, "#
            + #"{"fileExclusion": "a/secret"}"#
        #expect(throws: PackagingError.self) { try tree.names(selectors) }
        #expect(
            try tree.names(#"{"directory": "a"}, {"fileExclusion": "a/secret"}"#) == [
                "a/", "a/kept",
            ]
        )
        let other = try SourceTree("elsewhere")
        try other.file("song")
        try other.file("sub/.DS_Store")
        let absolute = """
            {"directorySource": "\(other.path)", "directoryDestination": "music"}, \
            {"fileExclusion": "**/.DS_Store"}
            """
        #expect(try tree.names(absolute) == ["music/", "music/song", "music/sub/"])
        let above = try #require(other.path.removingLastComponent().lastComponent)
        let named = absolute.replacing("**/.DS_Store", with: "**/\(above)")
        #expect(try tree.names(named).count == 4)
    }

    @Test func directoriesBeyondTheLimitOfClientsAreRefused() throws {
        let tree = try SourceTree()
        try tree.file("file")
        let root = try Directory.open(tree.path)
        for number in 0..<4099 { _ = try root.makeDirectory(FilePath("\(number)")) }
        #expect(
            throws: PackagingError.overLimit(
                ValueError(expected: "at most 4098 directories with 1 file", found: "4099")
            )
        ) { try tree.evaluate(#"{"directory": "."}"#) }
        try root.removeDirectory("0")
        #expect(try tree.evaluate(#"{"directory": "."}"#).entries.count == 4099)
    }

    @Test(arguments: [(directory: "caf\u{E9}", target: "x"), (directory: "d", target: "caf\u{E9}")])
    func bytesThatAreNotUTF8AreNotReplaced(directory: String, target: String) throws {
        /// Returns the text in Latin-1, terminated by zero.
        func latin(_ text: String) -> [CChar] {
            text.unicodeScalars.map { CChar(truncatingIfNeeded: $0.value) } + [0]
        }
        let tree = try SourceTree()
        let folder = "\(tree.path)/\(directory)"
        #expect(unsafe mkdir(latin(folder), 0o755) == 0)
        #expect(unsafe symlink(latin(target), latin("\(folder)/a.png")) == 0)
        #expect(throws: PackagingError.self) { try tree.evaluate(#"{"filePattern": "**/*.png"}"#) }
    }

    @Test func aNameThatIsNotUTF8CanBeExcluded() throws {
        let tree = try SourceTree()
        try tree.file("d/kept")
        let wrong: [CChar] = "\(tree.path)/d/caf".utf8.map { CChar(bitPattern: $0) } + [-23, 0]
        #expect(unsafe symlink("kept", wrong) == 0)
        for selector in [#"{"directory": "d"}"#, #"{"filePattern": "d/*"}"#] {
            #expect(throws: PackagingError.self) { try tree.names(selector) }
            let names = try tree.names(selector + #", {"fileExclusion": "**/caf?"}"#)
            #expect(names == ["d/", "d/kept"])
        }
    }

    @Test func aFIFOIsRefusedWithoutWaiting() throws {
        let tree = try SourceTree()
        let fifo = tree.path.appending("fifo").string
        let status = unsafe mkfifo(fifo, 0o600)
        try #require(status == 0)
        let fault = ValueError(
            expected: "a file, a directory or a link",
            found: "a device, a fifo or a socket"
        )
        let expected = PackagingError.notAllowed([RefusedSource(source: "fifo", fault: fault)])
        for selector in [#"{"file": "fifo"}"#, #"{"directory": "."}"#, #"{"filePattern": "*"}"#] {
            #expect(throws: expected) { try tree.names(selector) }
        }
        #expect(throws: PackagingError.self) { try tree.names(#"{"file": "x"}"#, root: "fifo") }
    }

    @Test func namesThatAPackMayNotHaveAreRefused() throws {
        let tree = try SourceTree()
        try tree.file("back\\slash")
        #expect(throws: PackagingError.self) { try tree.names(#"{"directory": "."}"#) }
        let renamed = #"{"fileSource": "back\\slash", "fileDestination": "x"}"#
        #expect(try tree.names(renamed) == ["x"])
    }

    @Test func allNamesThatAPackMayNotHaveAreReportedTogether() throws {
        let tree = try SourceTree()
        let names = ["back\\slash", "d/line\nbreak", "d/right\u{202E}left", "e\\/below"]
        for name in names + ["f", "g/fine"] { try tree.file(name) }
        try tree.link("outside", to: "/tmp")
        let everything = [#"{"directory": "."}"#, #"{"filePattern": "**"}"#].joined(separator: ", ")
        let error = #expect(throws: PackagingError.self) { try tree.names(everything) }
        let backslash = "expected a path without backslashes"
        let control = "expected a path without control and bidirectional characters"
        guard case .notAllowed(let refused)? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(
            refused.map(\.source) == [
                "back\\slash", "d/line\nbreak", "d/right\u{202E}left", "e\\", "outside",
                "e\\/below",
            ]
        )
        let text = try #require(error).description
        let head = "6 sources are not allowed in a pack: 'back\\slash', \(backslash); "
        #expect(text.hasPrefix(head + "'d/line\\u{a}break', \(control); "))
        #expect(text.contains("; 'd/right\\u{202e}left', \(control); "))
    }

    @Test func aMessageNamesFiftyRefusedSources() throws {
        let tree = try SourceTree()
        for number in 0..<51 { try tree.file("\(100 + number)\\") }
        let pattern = #"{"filePattern": "*"}"#
        let error = #expect(throws: PackagingError.self) { try tree.names(pattern) }
        let text = try #require(error).description
        #expect(text.hasPrefix("51 sources are not allowed in a pack: '100\\', expected "))
        #expect(text.contains("'149\\'") && !text.contains("'150\\'"))
        #expect(text.hasSuffix("; and 1 other"))
    }

    @Test func aSetUserIDFileIsRefusedAndASharedDirectoryIsNot() throws {
        let tree = try SourceTree()
        try tree.file("shared/file")
        try tree.set(0o2775, of: "shared")
        #expect(try tree.names(#"{"directory": "shared"}"#) == ["shared/", "shared/file"])
        try tree.set(0o4755, of: "shared/file")
        #expect(throws: PackagingError.self) { try tree.names(#"{"directory": "shared"}"#) }
    }

    @Test(.otherThanRoot("root reads every file")) func anUnreadableFileIsFound() throws {
        let tree = try SourceTree()
        try tree.file("secret", mode: 0)
        #expect(
            throws: PackagingError.file(
                FileError("open", path: tree.path.appending("secret"), errno: .permissionDenied)
            )
        ) { try tree.names(#"{"directory": "."}"#) }
    }

    @Test func probablyUnintendedEntriesAreReported() throws {
        let tree = try SourceTree()
        try tree.file("Readme")
        try tree.file("README")
        try tree.file("n\u{FC}")
        try tree.file("nu\u{308}")
        try tree.link("dangling", to: "sub/none")
        try tree.link("fine", to: "Readme")
        let evaluation = try tree.evaluate(#"{"directory": "."}, {"fileExclusion": "gone"}"#)
        #expect(
            evaluation.warnings.map(\.description) == [
                "'README' and 'Readme' are one name where the file system ignores case",
                "'nu\u{308}' and 'n\u{FC}' are one name where the file system ignores case",
                "the link 'dangling' leads to 'sub/none', which the pack does not have",
                "fileExclusion 'gone' excludes nothing",
            ]
        )
        #expect(evaluation.entries.count == 6)
    }

    /// A slash before a combining character separates components, too.
    @Test func aNameMayBeginWithACombiningCharacter() throws {
        let tree = try SourceTree("tree")
        try tree.file("d/\u{301}a")
        try tree.file("\u{301}b")
        try tree.link("d/l", to: "../\u{301}b")
        try tree.link("m", to: "d/\u{301}a")
        let all = try tree.evaluate(#"{"directory": "."}"#)
        #expect(all.warnings.map(\.description) == [])
        #expect(all.entries.count == 5)
        let some = try tree.evaluate(#"{"directory": "."}, {"fileExclusion": "d/\u0301a"}"#)
        let path = try ContentPath("d/\u{301}a")
        #expect(some.warnings.count == 1)
        #expect(!some.entries.map(\.content.path).contains(path))
    }

    @Test func aSourceKeepsItsBytesUnderACanonicallyEquivalentName() throws {
        let tree = try SourceTree("tree")
        try tree.file("caf\u{E9}/a", "1")
        try tree.file("cafe\u{301}/a", "2")
        let evaluation = try tree.evaluate(
            #"{"directorySource": "cafe\u0301", "directoryDestination": "caf\u00e9"}"#
        )
        let entry = try #require(evaluation.entries.last)
        #expect(Array(entry.content.path.text.utf8) == Array("caf\u{E9}/a".utf8))
        #expect(try File.open(reading: entry.file).readAll(limit: 9) == Array("2".utf8))
    }
}

import StageModel
import StagePublish
import Testing

@Suite struct RecipeTests {
    /// Returns a recipe with these selectors.
    private func recipe(_ selectors: String, more: String = "") -> [UInt8] {
        Array(
            """
            {"assetPackID": "aurora", "downloadPolicy": {"onDemand": {}}, "fileSelectors": \
            [\(selectors)]\(more)}
            """.utf8
        )
    }

    private func selectors(_ text: String) throws -> [FileSelector] {
        try Recipe(json: recipe(text)).selectors
    }

    private func fault(_ json: [UInt8]) -> ManifestError? {
        do {
            _ = try Recipe(json: json)
            return nil
        } catch {
            return error
        }
    }

    @Test func aRecipeIsReadWithAllItsMembers() throws {
        let json = """
            // The files that a recipe selects
            {
              "assetPackID": "aurora", /* the
              name */
              "downloadPolicy": { "prefetch": { "installationEventTypes": ["subsequentUpdate",] } },
              "fileSelectors": [ { "file": "a /* b" }, ],
              "platforms": ["iOS", "visionOS"], "language": "zh-Hans-CN",
              "sourceRoot": "content/./x/", "userInfo": { "b": [1, 2,], "a": null },
            }
            """
        var expected = Recipe(
            pack: try PackID("aurora"),
            policy: .prefetch([.subsequentUpdate]),
            selectors: [.file(source: "a /* b", destination: try ContentPath("a /* b"))]
        )
        expected.platforms = ["iOS", "visionOS"]
        expected.language = "zh-Hans-CN"
        expected.sourceRoot = "content/x"
        expected.userInfo = #"{"a":null,"b":[1,2]}"#
        #expect(try Recipe(json: Array(json.utf8)) == expected)
    }

    @Test func everySelectorIsRead() throws {
        let path = try ContentPath("a/b")
        #expect(
            try selectors(
                """
                {"file": "./a/b"}, {"directory": "a/b/"}, {"directory": "."},
                {"fileSource": "../x", "fileDestination": "a/b"},
                {"directorySource": "/x/", "directoryDestination": "a/b/"},
                {"directorySource": "x", "directoryDestination": "."},
                {"filePattern": "**/*.png"}, {"fileExclusion": "../x/[a-c]?"}
                """
            ) == [
                .file(source: "a/b", destination: path),
                .directory(source: "a/b", destination: path),
                .directory(source: ".", destination: nil),
                .file(source: "../x", destination: path),
                .directory(source: "/x", destination: path),
                .directory(source: "x", destination: nil),
                .pattern(try GlobPattern("**/*.png")),
                .exclusion(try GlobPattern("../x/[a-c]?")),
            ]
        )
    }

    @Test(arguments: [
        (#"{"fil": "a"}"#, "fileSelectors[0].fil"),
        (#"{"file": "a", "directory": "b"}"#, "fileSelectors[0]"),
        (#"{"fileSource": "a"}"#, "fileSelectors[0]"),
        ("{}", "fileSelectors[0]"),
        (#"{"file": "a"}, "b""#, "fileSelectors[1]"),
        (#"{"file": "../a"}"#, "fileSelectors[0].file"),
        (#"{"file": "/a"}"#, "fileSelectors[0].file"),
        (#"{"file": "."}"#, "fileSelectors[0].file"),
        (#"{"file": "a/"}"#, "fileSelectors[0].file"),
        (#"{"file": 1}"#, "fileSelectors[0].file"),
        (#"{"fileSource": "a", "fileDestination": "a/"}"#, "fileSelectors[0].fileDestination"),
        (#"{"fileSource": "", "fileDestination": "a"}"#, "fileSelectors[0].fileSource"),
        (#"{"filePattern": "../*"}"#, "fileSelectors[0].filePattern"),
        (#"{"filePattern": "/*"}"#, "fileSelectors[0].filePattern"),
        (#"{"filePattern": "[a"}"#, "fileSelectors[0].filePattern"),
        (#"{"filePattern": ""}"#, "fileSelectors[0].filePattern"),
        ("", "fileSelectors"),
    ])
    func aWrongSelectorIsNamed(text: String, member: String) {
        guard case .invalid(let found, _)? = fault(recipe(text)) else {
            Issue.record("accepted")
            return
        }
        #expect(found == member)
    }

    @Test func anUnknownMemberIsAnErrorThatNamesTheKnownOnes() {
        let expected = ManifestError.invalid(
            member: "assetPackId",
            ValueError(
                expected: "a member of 'assetPackID', 'downloadPolicy', 'fileSelectors', "
                    + "'platforms', 'language', 'sourceRoot', 'userInfo'",
                found: "an unknown one; did you mean 'assetPackID'?"
            )
        )
        #expect(fault(recipe(#"{"file": "a"}"#, more: #", "assetPackId": "x""#)) == expected)
    }

    @Test(arguments: [
        ("{ /* ü */ x", "line 1, column 11: expected a member's name, found 'x'"),
        ("// ü\n{\"a\": 1 /* \n\n */ x", "line 4, column 5: expected ',' or '}', found 'x'"),
        ("{ /* ü\n", "line 1, column 3: expected '*/' that ends the comment, found none"),
        ("[,]", "line 1, column 2: expected a value, found ','"),
        ("[1,,]", "line 1, column 4: expected a value, found ','"),
        ("[1,/**/ ,]", "line 1, column 9: expected a value, found ','"),
        ("[1] // x\n2", "line 2, column 1: expected the end, found '2'"),
        (#"["// /*" 1]"#, "line 1, column 10: expected ',' or ']', found '1'"),
        (#"["\"," x]"#, "line 1, column 8: expected ',' or ']', found 'x'"),
        ("/", "line 1, column 1: expected a value, found '/'"),
    ])
    func faultsOfSyntaxAreWhereTheyAre(text: String, message: String) {
        #expect(fault(Array(text.utf8)) == .notJSON(message))
    }

    @Test func cutAnywhereARecipeIsRefused() {
        let json = Array(RecipeTemplate.text.utf8)
        let end = json.lastIndex(of: UInt8(ascii: "}")) ?? 0
        for length in 0...end { #expect(fault(Array(json[..<length])) != nil) }
    }

    @Test func theTemplateIsARecipe() throws {
        let recipe = try Recipe(json: Array(RecipeTemplate.text.utf8))
        #expect(recipe.pack == (try PackID("my-pack")))
        // The commented-out members are valid too.
        let all = RecipeTemplate.text.split(separator: "\n").map { line -> String in
            let text = line.drop { $0 == " " }
            return text.hasPrefix("// ,") ? String(text.dropFirst(3)) : String(line)
        }
        let whole = try Recipe(json: Array(all.joined(separator: "\n").utf8))
        #expect(whole.selectors.count == 6)
        #expect(whole.sourceRoot == "content")
    }
}

import StageModel
import Testing

@testable import StagePublish

@Suite struct GlobPatternTests {
    @Test(arguments: [
        ("a", "a", true), ("a", "b", false), ("a", "a/b", false), ("a", "A", false),
        ("*", "abc", true), ("*", ".hidden", true), ("*", "a/b", false),
        ("*.png", "a.png", true), ("*.png", ".png", true), ("*.png", "a.pngx", false),
        ("*.png", "d/a.png", false), ("a*b*c", "aXbYbZc", true), ("a*b*c", "aXcYb", false),
        ("a?c", "abc", true), ("a?c", "aüc", true), ("a?c", "ac", false), ("a?c", "a/c", false),
        ("[a-c]x", "bx", true), ("[a-c]x", "dx", false), ("[!a-c]x", "dx", true),
        ("[^a-c]x", "ax", false), ("[]]", "]", true), ("[a-]", "-", true), ("[*]", "*", true),
        ("[*]", "a", false), ("\\*", "*", true), ("\\*", "a", false), ("[ä-ü]", "ö", true),
        ("**", "a", true), ("**", "a/b/c", true),
        ("**/a", "a", true), ("**/a", "x/y/a", true), ("**/a", "x/ya", false),
        ("a/**", "a/b", true), ("a/**", "a/b/c", true), ("a/**", "a", false),
        ("a/**/b", "a/b", true), ("a/**/b", "a/x/y/b", true), ("a/**/b", "a/x/b/y", false),
        ("**/x/**/*.t", "a/x/b/x/c.t", true), ("**/x/**", "a/x", false),
        ("a**b", "axxb", true), ("a**b", "a/b", false),
        ("./a//b", "a/b", true), ("/a/*", "/a/b", true), ("../x/*", "../x/y", true),
    ])
    func aPatternMatchesWhatItSays(pattern: String, path: String, isMatch: Bool) throws {
        let pattern = try GlobPattern(pattern)
        let state = path.split(separator: "/").reduce(pattern.start) {
            pattern.advance($0, over: $1)
        }
        #expect(pattern.accepts(state) == isMatch)
    }

    @Test(arguments: [
        ("a/b", "a/b", true), ("a/b", "a/b/c", true), ("a/b", "a/bc", false), ("a/b", "a", false),
        ("*.tmp", "x.tmp/y", true), ("**/.git", "a/.git/x/y", true), ("a/**", "a", false),
        ("/a/*", "/a/b", true), ("/a/*", "a/b", false), ("a/b", "/a/b", false),
        ("**/.DS_Store", "/srv/music/.DS_Store", true), ("**", "/srv", true),
        ("/**/*.psd", "art/x.psd", false), ("/**/*.psd", "/art/x.psd", true),
    ])
    func anExclusionHoldsBelowDirectoriesToo(
        pattern: String,
        path: String,
        isExcluded: Bool
    ) throws {
        #expect(try GlobPattern(pattern).excludes(path) == isExcluded)
    }

    /// The recipe selects 'build' in '/tmp'.
    @Test func directoriesAboveASourceExcludeNothing() throws {
        #expect(try !GlobPattern("**/tmp").excludes("/tmp/build/a", below: 1))
        #expect(try GlobPattern("**/build").excludes("/tmp/build/a", below: 1))
        #expect(try GlobPattern("**/tmp").excludes("/tmp/build/tmp/a", below: 1))
        #expect(try GlobPattern("/tmp").excludes("/tmp/build/a", below: 1))
    }

    @Test func aPatternOfManyWildcardsIsQuick() throws {
        let pattern = try GlobPattern(String(repeating: "*a", count: 50) + "b")
        #expect(!pattern.excludes(String(repeating: "a", count: 500)))
        let deep = try GlobPattern(String(repeating: "**/", count: 30) + "b")
        #expect(!deep.excludes(String(repeating: "a/", count: 500) + "a"))
    }

    @Test func directoriesThatCannotMatchAreNotEntered() throws {
        let pattern = try GlobPattern("a/*/c")
        let inside = pattern.advance(pattern.start, over: "a")
        #expect(!inside.isEmpty)
        #expect(pattern.advance(pattern.start, over: "b").isEmpty)
        let below = pattern.advance(pattern.advance(inside, over: "x"), over: "c")
        #expect(pattern.accepts(below))
        #expect(pattern.advance(below, over: "d").isEmpty)
    }

    @Test(arguments: [("a/b", true), ("a/\\*", true), ("a/*", false), ("**/a", false)])
    func aPathIsLiteral(pattern: String, isLiteral: Bool) throws {
        #expect(try GlobPattern(pattern).isLiteral == isLiteral)
    }
}

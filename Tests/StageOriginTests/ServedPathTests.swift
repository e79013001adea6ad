import StageModel
import Testing

@testable import StageOrigin

@Suite
struct ServedPathTests {
    @Test(arguments: [
        ("/", [], true),
        ("/a", ["a"], false),
        ("/a/b.zst", ["a", "b.zst"], false),
        ("/a/", ["a"], true),
        ("/a%20b%C3%A9", ["a b\u{E9}"], false),
        ("/%2561", ["%61"], false),
        ("/a..b", ["a..b"], false),
    ])
    func aPathIsSplitIntoNames(path: String, names: [String], isDirectory: Bool) {
        #expect(ServedPath(path)?.names == names)
        #expect(ServedPath(path)?.hasTrailingSlash == isDirectory)
    }

    @Test(arguments: [
        "", "a", "//", "//a", "/a//b", "/..", "/../a", "/a/../b", "/%2e%2e/a", "/%2E./a", "/.%2e",
        "/.", "/./a", "/.git", "/a/.hidden", "/%2ehidden", "/a%2fb", "/a%2Fb", "/a%00b", "/%",
        "/%4", "/%zz", "/%ff", "/..%2fa", "*",
    ])
    func aPathThatIsNotPlainNamesNothing(path: String) {
        #expect(ServedPath(path) == nil)
    }

    @Test(arguments: ["a", "a b", "\u{E9}%", "<&\"'>", "a:b?c#d", "%2e"])
    func anEncodedNameIsDecodedToItself(name: String) {
        #expect(ServedPath("/" + name.percentEncoded())?.names == [name])
    }
}

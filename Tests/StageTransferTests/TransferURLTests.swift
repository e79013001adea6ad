import Testing

@testable import StageTransfer

struct TransferURLTests {
    @Test(arguments: ["file:///a/b", "file:/a/b", "file://localhost/a/b"])
    func aFileHasAnAbsolutePath(text: String) throws {
        let url = try TransferURL(text)
        #expect(url.isFile)
        #expect(url.path == "/a/b")
        #expect(try TransferURL(url.display).path == "/a/b")
    }

    /// It would be a file in the directory that the process happens to run in.
    @Test(arguments: ["file:a/b", "file:a b", "file:.", "file:", "file:///", "file:///\0/a"])
    func aFileWithoutAnAbsolutePathIsRefused(text: String) throws {
        #expect(throws: TransferError.unacceptable(url: text, .url)) { try TransferURL(text) }
        #expect(try TransferURL("https://a/b").resolving(text) == nil)
    }

    /// libcurl would decode it once more when it asks.
    @Test func aHostThatIsEncodedTwiceIsRefused() throws {
        let text = "https://a%2525b.example/c"
        #expect(throws: TransferError.unacceptable(url: text, .url)) { try TransferURL(text) }
        #expect(try TransferURL("https://a/b").resolving("//a%t.example/c") == nil)
        #expect(try TransferURL("https://a%2Eexample/c").host == "a.example")
    }
}

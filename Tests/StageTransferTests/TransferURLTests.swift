import StageModel
import StageTesting
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

    /// Such a URL would name a file in the current directory of the process.
    @Test(arguments: ["file:a/b", "file:a b", "file:.", "file:", "file:///", "file:///\0/a"])
    func aFileWithoutAnAbsolutePathIsRefused(text: String) throws {
        #expect(throws: TransferError.unacceptable(url: text, .url)) { try TransferURL(text) }
        #expect(try TransferURL("https://a/b").resolving(text) == nil)
    }

    /// libcurl decodes a host when it parses the URL, and again when it connects.
    @Test(arguments: ["https://a%2525b.example/c", "https://a%2Eexample/c", "https://a%t/c"])
    func aHostThatIsEncodedIsRefused(text: String) throws {
        #expect(throws: TransferError.unacceptable(url: text, .host)) { try TransferURL(text) }
        // A reference is resolved by libcurl, which decodes its host once.
        let led = try TransferURL("https://a/b").resolving(String(text.dropFirst(6)))
        #expect(led?.text == (text == "https://a%2Eexample/c" ? "https://a.example/c" : nil))
    }

    /// Each decision about a server parses a URL as libcurl does, which sends the request, or refuses it.
    @Test(arguments: HostileURL.all)
    func allReadersAgreeOnTheServer(url: HostileURL) throws {
        let origin = URLReference(url.text).origin
        #expect(origin?.description == url.origin)
        let asked = try? TransferURL(url.text)
        #expect(asked.map { "\($0.scheme)://\($0.authority)" } == url.origin)
        let led = try TransferURL("https://start.example/").resolving(url.text)
        // libcurl resolves a reference before the target is parsed; all parsers agree on the server of the result.
        #expect(led == nil || URLReference(led?.text ?? "").origin?.host == led?.host)
        // A list contains names without the dot at their end.
        let host = origin?.host ?? ""
        let pattern = host.hasSuffix(".") ? String(host.dropLast()) : host
        #expect(origin == nil || AllowedDomains([pattern]).contains(host))
    }

    @Test(arguments: [
        ("http://a%2Eb/", TransferError.Unacceptable.host), ("http://0x7f.1/", .host),
        ("http://u:p@[fe80::1%25lo]/", .host), ("http://a@b@c/", .url), ("http:/h", .url),
        ("http:///h", .url), ("ftp://h/", .url),
    ])
    func aRefusalSaysWhetherTheHostIsAmbiguous(
        text: String,
        reason: TransferError.Unacceptable
    ) {
        let error = TransferError.unacceptable(url: text.withoutUser, reason)
        #expect(throws: error) { try TransferURL(text) }
    }

    /// Paths of files as libcurl opens them, or `nil` if parsers disagree.
    @Test(
        arguments: [
            ("file:///a/b", "/a/b"), ("FILE:///a%20b", "/a b"), ("file:///a/../b", "/b"),
            ("file:/a", "/a"), ("file://LOCALHOST/a", "/a"), ("file:///a%2Fb", "/a/b"),
            ("file:///a?b", "/a"), ("file:///a#b", "/a"), ("file:///a/%2e%2e/b", nil),
            ("file:///a%2F..%2Fb", nil), ("file:///a/%2e%2e/%CC%81b", nil),
            ("file:///a%00", nil), ("file:///a%0Ab", nil),
            ("file:///a%ff", nil), ("file:///a%zz", nil), ("file://127.0.0.1/a", nil),
            ("file://h/a", nil), ("file:a", nil), ("file://u@/a", nil),
        ] as [(String, String?)]
    )
    func allReadersAgreeOnAFile(text: String, path: String?) {
        #expect(URLReference(text).filePath == path)
        #expect((try? TransferURL(text))?.path == path)
    }
}

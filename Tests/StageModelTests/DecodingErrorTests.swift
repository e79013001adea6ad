import FoundationEssentials
import StageModel
import Testing

/// Messages about JSON of an unexpected form, which name no Swift types.
@Suite struct DecodingErrorTests {
    private struct Sample: Decodable {
        enum Kind: String, Decodable { case download, upload }

        struct Part: Decodable {
            var kind: Kind
            var size: ByteCount?
        }

        var tasks: [Part]
        var rate: Double?
        var count: UInt8?
        var fields: [String: String]?
        var isLast: Bool?
    }

    @Test(arguments: [
        ("{\n\"tasks\": [}", "not JSON: line 2, column 11: expected a value, found '}'"),
        ("", "not JSON: line 1, column 1: expected a value, found the end"),
        ("{}", "the member 'tasks' is missing"),
        (#"{"tasks": [{"kind": "upload"}, {}]}"#, "'tasks[1]': the member 'kind' is missing"),
        (
            #"{"tasks": [{"kind": "foo"}]}"#,
            "'tasks[0].kind': expected a known value, found 'foo'"
        ),
        (#"{"tasks": [{"kind": 3}]}"#, "'tasks[0].kind': expected a string, found 3"),
        (#"{"tasks": [{"kind": null}]}"#, "'tasks[0].kind': expected a string, found null"),
        (#"{"tasks": {}}"#, "'tasks': expected an array, found an object"),
        (#"{"tasks": [1]}"#, "'tasks[0]': expected an object, found 1"),
        (#"{"tasks": [], "rate": "fast"}"#, "'rate': expected a number, found 'fast'"),
        (
            #"{"tasks": [], "count": 300}"#,
            "a value is not within its limits"
        ),
        (#"{"tasks": [], "isLast": "yes"}"#, "'isLast': expected a boolean, found 'yes'"),
        (#"{"tasks": [], "fields": {"a": []}}"#, "'fields.a': expected a string, found an array"),
        (
            #"{"tasks": [{"kind": "upload", "size": -1}]}"#,
            "'tasks[0].size': expected a number of bytes, found -1"
        ),
    ])
    func theMemberAndItsFaultAreNamed(json: String, words: String) throws {
        let error = #expect(throws: DecodingError.self) {
            try JSONDecoder().decode(Sample.self, from: Data(json.utf8))
        }
        #expect(try #require(error).text(in: Array(json.utf8)) == words)
    }
}

/// The syntax of proxies in configuration files.
@Suite struct ProxyAddressTests {
    @Test(arguments: [
        "", "proxy", "proxy:8080", "http://proxy.example:8080", "HTTPS://proxy/",
        "socks5h://user:word@[::1]:1080", "http://10.0.0.1",
        "socks://127.0.0.1:1080/",
    ])
    func aProxyIsAccepted(text: String) throws {
        try ProxyAddress.check(text)
    }

    @Test(arguments: [
        ("foo bar", "foo bar"), ("ftp://proxy", "ftp://proxy"), ("http://", "http://"),
        ("proxy:0", "proxy:0"), ("proxy:65536", "proxy:65536"), ("proxy:", "proxy:"),
        ("[::1", "[::1"), ("a:b:c", "a:b:c"), ("http://user:word@:80", "http://…@:80"),
        ("user:word@proxy:0", "…@proxy:0"), ("http://user:wo/rd@proxy:0", "http://…@proxy:0"),
        ("http://user:word@\u{301}:0", "http://…@\u{301}:0"),
        ("http://\u{301}user:word@proxy:0", "http://…@proxy:0"),
        ("ftp://\u{301}proxy", "ftp://\u{301}proxy"),
    ])
    func anythingElseIsRefused(text: String, shown: String) {
        let expected = ValueError(
            expected: "a proxy such as 'http://proxy.example:8080'",
            text: shown
        )
        #expect(throws: expected) { try ProxyAddress.check(text) }
    }

    @Test(arguments: [
        ("http://proxy.example:8080", "http://proxy.example:8080"),
        ("http://user:secret@proxy.example:8080", "http://proxy.example:8080"),
        ("user@proxy.example", "proxy.example"), ("socks5://a:b@c@[::1]:1/@", "socks5://[::1]:1/@"),
        ("http://user:secret@\u{301}proxy:80", "http://\u{301}proxy:80"),
        ("http://\u{301}user:secret@proxy:80", "http://proxy:80"), ("", ""),
    ])
    func aProxyIsGivenWithoutItsUser(text: String, expected: String) {
        #expect(ProxyAddress.withoutUser(text) == expected)
    }

    /// A character and the combining characters after it are one character in Swift; for servers, the first one is a delimiter.
    @Test(arguments: [
        ("http://user:secret@host/a@b?c", "http://…@host/a@b?c"),
        ("http://user:secret@\u{301}host/", "http://…@\u{301}host/"),
        ("http://\u{301}user:secret@host/", "http://…@host/"),
        ("http://host/\u{301}a@b", "http://host/\u{301}a@b"), ("a@b", "a@b"),
        ("http://a@b@host/", "http://…@host/"), ("http://host?a@b", "http://host?a@b"),
        ("http://host#a@b", "http://host#a@b"), ("a:b://user@host", "a:b://…@host"),
        ("http:/a@b", "http:/a@b"),
    ])
    func aURLIsShownWithoutItsUser(text: String, expected: String) {
        #expect(text.withoutUser.utf8.elementsEqual(expected.utf8))
    }

    @Test(arguments: ["?", "?\u{301}b", "#\u{301}?", ""])
    func aURLHasAPathBeforeItsQuery(query: String) {
        #expect("https://host/a\(query)".withoutQuery == "https://host/a")
    }
}

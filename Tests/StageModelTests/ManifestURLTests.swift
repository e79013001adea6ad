import StageModel
import Testing

@Suite struct ManifestURLTests {
    @Test(arguments: [
        ("https://h/w/", "packs/a.tar", "https://h/w/packs/a.tar"),
        ("https://h/w", "packs/a.tar", "https://h/packs/a.tar"),
        ("https://h", "a.tar", "https://h/a.tar"),
        ("https://h:8443/w/m.json?v=2", "a.tar", "https://h:8443/w/a.tar"),
        ("https://h/w/", "a.tar?v=1&x=../y", "https://h/w/a.tar?v=1&x=../y"),
        ("https://h/w/x/", "../a.tar", "https://h/w/a.tar"),
        ("https://h/w/", "../../../a.tar", "https://h/a.tar"),
        ("https://h/w/", "./a/./b/../c", "https://h/w/a/c"),
        ("https://h/w/", "a/..", "https://h/w/"),
        ("https://h/w/", "/a.tar", "https://h/a.tar"),
        ("https://h/w/m.json", "?v=1", "https://h/w/m.json?v=1"),
        ("file:///srv/w/m.json", "packs/a.tar", "file:///srv/w/packs/a.tar"),
        ("file:///srv/w/m.json", "../a.tar", "file:///srv/a.tar"),
        ("https://h/w/", "http://other/a.tar", "http://other/a.tar"),
        ("https://h/w/", "file:///a/../b", "file:///a/../b"),
    ])
    func urlsAreResolvedAgainstTheManifest(base: String, url: String, expected: String) throws {
        var manifest = try Sample.expected()
        manifest.baseURLs = []
        #expect(manifest.urls(for: url, manifestURL: base) == [expected])
        manifest.baseURLs = [base, "https://second/x/", base]
        let urls = manifest.urls(for: url, manifestURL: "https://unused/")
        #expect(urls.first == expected)
        #expect(urls.count == (url.contains(":") ? 1 : 2))
    }

    @Test func bundlesLieBesideTheirIndex() throws {
        var manifest = try Sample.expected()
        let digest = Digest(bytes: [UInt8](repeating: 0x11, count: 32))
        let index = PackIndex(
            url: "objects/i/\(digest)",
            size: .zero,
            digest: digest,
            contentSize: .zero,
            contentDigest: digest,
            bundleSize: .zero
        )
        manifest.baseURLs = ["https://a/x/", "https://b/"]
        let urls = manifest.urls(forBundle: digest, of: index, manifestURL: "https://unused/")
        #expect(
            urls == ["https://a/x/objects/b/\(digest)", "https://b/objects/b/\(digest)"]
        )
        let sets = manifest.urls(forDeltaSet: digest, of: index, manifestURL: "https://unused/")
        #expect(
            sets == ["https://a/x/objects/d/\(digest)", "https://b/objects/d/\(digest)"]
        )
    }

    @Test(arguments: [
        "https://example.org/m", "HTTPS://example.org/m", "file:///srv/m", "http://127.0.0.1/m",
        "http://127.0.0.1:8080/m", "http://127.0.0.1:/m", "http://[::1]:/m",
        "http://127.255.0.3", "http://localhost:1/m",
        "HTTP://LOCALHOST/m", "http://[::1]/m", "http://[::1]:8080/m", "http://localhost./m",
        "http://a.b.localhost:80/m", "http://a.LocalHost./", "http://[0:0:0:0:0:0:0:1]/",
        "http://[0000::0001]/m", "http://[::0:1]/", "http://[::ffff:127.0.0.1]/",
        "http://[::FFFF:7f01:0203]/m",
    ])
    func theseTransportsAreEnough(url: String) {
        #expect(ManifestTrust.isAcceptable(url))
    }

    @Test(arguments: [
        "http://example.org/m", "http://127.0.0.1.evil.example/m", "http://localhost@evil/m",
        "http://localhost:80@evil/m", "http://evil/?http://localhost/", "http://localhost.evil/m",
        "http://evil#@localhost/", "http://128.0.0.1/", "http://127.0.0/", "http://127.0.0.256/",
        "http://127.0.0.01/", "http://127.0.0.+1/", "http://[::2]/", "http://[::1].evil/",
        "http://localhost../", "http://notlocalhost/", "http://[::ffff:128.0.0.1]/",
        "http://[::127.0.0.1]/", "http://[::1::]/", "http://[:::1]/", "http://[1::1]/",
        "http://[::]/",
        "http://[0:0:0:0:0:0:1]/", "http://[0:0:0:0:0:0:0:0:1]/", "http://[::00001]/",
        "http://[::ffff:127.0.0.01]/", "http://[127.0.0.1::]/", "http://::1/", "http://0.0.0.0/",
        "http://[::1]evil/", "http://localhost:x/", "http://localhost\\@evil/", "http:localhost",
        "https://user:password@example.org/m", "https://user@example.org/m",
        "http://user:password@127.0.0.1/m", "https:///m", "https://",
        "http:///localhost", "ftp://localhost/", "localhost", "", "//localhost/", "http://",
    ])
    func theseAreNot(url: String) {
        #expect(!ManifestTrust.isAcceptable(url))
    }
}

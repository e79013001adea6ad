import Logging
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import StageTransfer
import SystemPackage
import Testing

@Suite(.server, .directory) struct ServerLintTests {
    private static let content = Array("0123456789".utf8)

    private func manifest(_ url: String, base: [String] = []) throws -> Manifest {
        let pack = Pack(
            id: try PackID("aurora"),
            version: 1,
            policy: .onDemand,
            archive: PackArchive(
                url: url,
                format: .tar,
                size: ByteCount(Self.content.count),
                digest: Digest(of: Self.content)
            ),
            installedSize: ByteCount(1),
            fileCount: 1
        )
        return Manifest(
            application: try ApplicationID("net.example.app"),
            revision: 1,
            baseURLs: base,
            packs: [pack]
        )
    }

    private func lint(_ manifest: Manifest, at url: String? = nil) async throws -> [LintFinding] {
        let logger = Logger(label: "tests") { _ in SwiftLogNoOpLogHandler() }
        return try await withTransferEngine(TransferConfiguration(), logger: logger) { engine in
            await ServerLint.findings(about: manifest, manifestURL: url, with: engine)
        }
    }

    /// Returns the findings about an archive with this response: severity, member, and the message without
    /// the URL.
    private func findings(_ answer: Answer, path: String = "/packs/a.tar") async throws -> [String]
    {
        let server = TestServer.current
        server.answer(path, with: answer)
        let found = try await lint(manifest(server.url(path)))
        return found.map { finding in
            let message = finding.message.replacing("'\(server.url(path))' ", with: "")
            return "\(finding.severity.rawValue): \(finding.member): \(message)"
        }
    }

    /// A manifest with an indexed pack, whose index is on the server.
    private func indexed() throws -> Manifest {
        let server = TestServer.current
        let (size, digest) = (ByteCount(Self.content.count), Digest(of: Self.content))
        let bundle = ContentIndex.Bundle(digest: digest, size: size.rawValue)
        let frame = ContentIndex.Frame(
            digest: digest,
            length: Self.content.count,
            compressed: nil,
            bundle: 0,
            offset: 0
        )
        let index = ContentIndex(bundles: [bundle], frames: [frame]).encoded()
        var compressor = FrameCompressor(level: 3)
        let stored = compressor.compress(index.span)
        server.answer("/x/i/1", with: .content(stored))
        var manifest = try manifest(server.url("/x/i/1"))
        manifest.packs[0].archive = nil
        manifest.packs[0].index = PackIndex(
            url: "x/i/1",
            size: ByteCount(stored.count),
            digest: Digest(of: stored),
            contentSize: ByteCount(index.count),
            contentDigest: Digest(of: index),
            bundleSize: size
        )
        return manifest
    }

    @Test func bundlesAreAskedForBesideTheirIndex() async throws {
        let server = TestServer.current
        let manifest = try indexed()
        let url = server.url("/manifest.json")
        #expect(
            try await lint(manifest, at: url).map(\.member) == ["packs[0].index: bundles[0].url"]
        )
        let path = "/x/b/\(Digest(of: Self.content))"
        server.answer(path, with: .content(Self.content))
        #expect(try await lint(manifest, at: url) == [])
        server.answer(path, with: .content(Array(Self.content.dropLast())))
        #expect(
            try await lint(manifest, at: url).map(\.member) == ["packs[0].index: bundles[0].size"]
        )
    }

    /// The index has no directories.
    @Test(
        arguments: [
            (nil, []), (0, []),
            (2, ["expected 2 directories, as 'directoryCount' states, found 0"]),
        ] as [(Int?, [String])]
    )
    func anotherNumberOfDirectoriesThanThatOfTheIndexIsAFinding(
        count: Int?,
        messages: [String]
    ) async throws {
        let server = TestServer.current
        var manifest = try indexed()
        manifest.packs[0].directoryCount = count
        server.answer("/x/b/\(Digest(of: Self.content))", with: .content(Self.content))
        let found = try await lint(manifest, at: server.url("/manifest.json"))
        #expect(found.map(\.message) == messages)
        #expect(found.allSatisfy { $0.severity == .error && $0.member == "packs[0].index" })
    }

    @Test func anotherIndexIsAFinding() async throws {
        let server = TestServer.current
        let manifest = try indexed()
        let size = try #require(manifest.packs[0].index).size.rawValue
        server.answer("/x/i/1", with: .content([UInt8](repeating: 0, count: Int(size))))
        let found = try await lint(manifest, at: server.url("/manifest.json"))
        #expect(found.map(\.member) == ["packs[0].index.sha256"])
    }

    @Test func deltaSetsAreAskedForBesideTheirIndex() async throws {
        let server = TestServer.current
        let (size, digest) = (ByteCount(Self.content.count), Digest(of: Self.content))
        var manifest = try indexed()
        manifest.packs[0].index?.deltas = [
            PackIndex.Delta(
                base: digest,
                url: "x/i/2",
                size: size,
                digest: digest,
                frames: PackIndex.DeltaFrames(
                    size: size,
                    digest: digest,
                    tableSize: size,
                    tableDigest: digest
                )
            )
        ]
        for path in ["/x/i/2", "/x/b/\(digest)"] {
            server.answer(path, with: .content(Self.content))
        }
        let missing = try await lint(manifest, at: server.url("/manifest.json"))
        #expect(missing.map(\.member) == ["packs[0].index.deltas[0].frames.url"])
        server.answer("/x/d/\(digest)", with: .content(Self.content))
        #expect(try await lint(manifest, at: server.url("/manifest.json")) == [])
    }

    /// A name that contains a digest always has the same content.
    @Test func aURLWithADigestNeedsNoValidator() async throws {
        let server = TestServer.current
        var manifest = try indexed()
        let (size, digest) = (ByteCount(Self.content.count), Digest(of: Self.content))
        let index = try #require(manifest.packs[0].index)
        let base = Digest(of: [])
        let name = "x/i/\(index.contentDigest).from.\(base)"
        let delta = PackIndex.Delta(base: base, url: name, size: size, digest: digest)
        manifest.packs[0].index?.deltas = [delta]
        for path in [name, "x/b/\(digest)", "x/i/2"] {
            server.answer("/" + path, with: .content(Self.content).tagged(nil))
        }
        #expect(try await lint(manifest, at: server.url("/manifest.json")) == [])
        manifest.packs[0].index?.deltas[0].url = "x/i/2"
        let found = try await lint(manifest, at: server.url("/manifest.json"))
        #expect(found.map(\.member) == ["packs[0].index.deltas[0].url"])
        #expect(found.first?.message.contains("has no strong validator") == true)
    }

    @Test func aGoodServerHasNoFindingsAndSendsOneByte() async throws {
        let server = TestServer.current
        #expect(try await findings(.content(Self.content)) == [])
        let request = try #require(server.requests(for: "/packs/a.tar").first)
        #expect(request.fields["range"] == "bytes=9-9")
        #expect(server.requests(for: "/packs/a.tar").count == 1)
    }

    @Test func redirectsAreFollowed() async throws {
        let server = TestServer.current
        server.answer("/b", with: .content(Self.content))
        #expect(try await findings(.redirect(to: "/b")) == [])
        server.answer("/c", with: .status(403))
        #expect(
            try await findings(.redirect(to: "/c"))
                == ["error: packs[0].archive.url: is answered with status 403"]
        )
    }

    @Test(arguments: [9, 11]) func anotherSizeIsAnError(count: Int) async throws {
        let content = Array(repeating: UInt8(ascii: "x"), count: count)
        let url = TestServer.current.url("/packs/a.tar")
        let expected = [
            "error: packs[0].archive.size: expected 10 bytes, found \(count) at '\(url)'"
        ]
        #expect(try await findings(.content(content)) == expected)
        let whole = try await findings(Answer.content(content).ignoringRanges())
        #expect(whole.first == expected.first)
    }

    @Test func conditionsThatPreventResumingAreReported() async throws {
        let content = Answer.content(Self.content)
        let ranges =
            "warning: packs[0].archive.url: does not support ranges: interrupted downloads restart"
        func validator(_ why: String) -> String {
            "warning: packs[0].archive.url: has no strong validator (\(why)): interrupted "
                + "downloads may restart"
        }
        #expect(try await findings(content.ignoringRanges()) == [ranges])
        #expect(
            try await findings(content.tagged("W/\"x\""))
                == [validator("the entity tag W/\"x\" is weak")]
        )
        #expect(try await findings(content.tagged(nil)) == [validator("there is no entity tag")])
        let path = "/packs/\(Digest(of: Self.content)).tar"
        #expect(try await findings(content.tagged(nil), path: path) == [])
        let shifted = try await findings(content.with { $0.rangeShift = 1 })
        #expect(shifted.count == 1)
        #expect(shifted.first?.contains("another range") == true)
    }

    /// nginx derives entity tags from the size and the second of a file.
    @Test(arguments: ["Sun, 06 Nov 1994 08:49:37 GMT", "Tue, 08 Nov 1994 08:49:37 GMT"])
    func contentThatChangedInTheSecondOfTheResponseIsNotBlamedOnItsTag(
        modified: String
    ) async throws {
        let server = TestServer.current
        let date = "Sun, 06 Nov 1994 08:49:37 GMT"
        let answer = Answer.content(Self.content).field("Date", date)
            .field("Server", "nginx/1.22.1")
        server.answer("/a", with: answer.field("Last-Modified", modified))
        server.answer("/b", with: answer.field("Last-Modified", "Sun, 06 Nov 1994 08:49:36 GMT"))
        #expect(try await lint(manifest(server.url("/b"))) == [])
        let finding = try #require(try await lint(manifest(server.url("/a"))).first)
        #expect(
            finding.message.hasSuffix(
                "has no strong validator (by its dates it was modified in the second of the "
                    + "answer, or later: Last-Modified \(modified), Date \(date)): interrupted "
                    + "downloads may restart"
            )
        )
        #expect(finding.hint?.contains("correct the time of the file") == true)
    }

    @Test func responsesWithoutTheArchiveAreErrors() async throws {
        let prefix = "error: packs[0].archive.url:"
        #expect(try await findings(.status(404)) == ["\(prefix) is answered with status 404"])
        #expect(try await findings(.portal).contains("\(prefix) is answered with a web page"))
        let encoded = Answer.content(Self.content + [0]).field("Content-Encoding", "gzip")
        #expect(
            try await findings(encoded)
                .contains("\(prefix) is sent with the content encoding 'gzip', which is refused")
        )
        let named = Answer.content(Self.content).field("Content-Encoding", "gzip")
        #expect(
            try await findings(named) == [
                "warning: packs[0].archive.url: is sent with the content encoding 'gzip', which caches "
                    + "may decode"
            ]
        )
        let dropped = try await findings(.dropped)
        #expect(dropped.count == 1)
        #expect(dropped.first?.hasPrefix(prefix) == true)
    }

    @Test func aHintForNginxNamesTheChange() async throws {
        let server = TestServer.current
        let answer = Answer.content(Self.content).tagged("W/\"x\"").field("Server", "nginx/1.22.1")
        server.answer("/a", with: answer)
        let found = try await lint(manifest(server.url("/a")))
        #expect(
            found.map(\.hint)
                == ["nginx: 'etag on' and 'gzip off' for archives; or put the digest in the URL"]
        )
    }

    @Test func everyMirrorIsAsked() async throws {
        let server = TestServer.current
        server.answer("/one/a", with: .content(Self.content))
        server.answer("/two/a", with: .status(410))
        let manifest = try manifest("a", base: [server.url("/one/"), server.url("/two/")])
        let found = try await lint(manifest)
        #expect(found.map(\.message) == ["'\(server.url("/two/a"))' is answered with status 410"])
    }

    @Test func relativeURLsDependOnTheManifests() async throws {
        let server = TestServer.current
        server.answer("/x/a", with: .content(Self.content))
        let found = try await lint(manifest("a"))
        #expect(found.map(\.message) == ["'a' depends on the URL of the manifest"])
        #expect(try await lint(manifest("a"), at: server.url("/x/manifest.json")) == [])
    }

    @Test func localFilesAreLookedAt() async throws {
        let directory = try TemporaryDirectory.required()
        try directory.write(Self.content, to: "good", durably: false)
        try directory.write([1], to: "short", durably: false)
        func severities(_ name: String) async throws -> [String] {
            try await lint(manifest("file://\(directory.path)/\(name)")).map(\.member)
        }
        #expect(try await severities("good") == [])
        #expect(try await severities("short") == ["packs[0].archive.size"])
        #expect(try await severities("none") == ["packs[0].archive.url"])
    }
}

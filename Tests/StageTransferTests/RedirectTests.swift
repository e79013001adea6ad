import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageTransfer

@Suite(.server) struct RedirectTests {
    let server = TestServer.current
    let folder: TemporaryDirectory
    let part: PartialFile
    static let content = noise(5000)

    init() throws {
        folder = try TemporaryDirectory()
        part = try PartialFile.open("pack", in: folder.directory)
        server.answer("/pack", with: .content(Self.content))
    }

    private func request(_ path: String) -> DownloadRequest {
        DownloadRequest(server.url(path), content: Self.content)
    }

    @Test(arguments: ["pack", "/pack", "//127.0.0.1:PORT/pack", "http://127.0.0.1:PORT/pack#x"])
    func aRedirectIsFollowed(location: String) async throws {
        let target = location.replacing("PORT", with: "\(server.port)")
        let page = Answer.redirect(to: target, status: 307).with { $0.content = noise(3000) }
        server.answer("/start", with: page)
        let receipt = try await download(request("/start"), to: part)
        #expect(receipt.url == server.url("/start"))
        #expect(server.connectionCount == 1)
    }

    @Test func tenRedirectsAreFollowedAndNoMore() async throws {
        for step in 1...11 {
            server.answer("/\(step)", with: .redirect(to: step == 1 ? "/pack" : "/\(step - 1)"))
        }
        try await download(request("/10"), to: part)
        let error = await failure(of: request("/11"), to: part)
        #expect(error == nil)
        try part.remove()
        let refused = await failure(of: request("/11"), to: part)
        #expect(refused == .unacceptable(url: server.url("/1"), .redirects(limit: 10)))
    }

    @Test(arguments: ["file:///etc/passwd", "ftp://127.0.0.1/", "http://[bad"])
    func aRedirectToSomethingElseIsRefused(location: String) async throws {
        server.answer("/start", with: .redirect(to: location))
        let error = await failure(of: request("/start"), to: part)
        #expect(
            error == .unacceptable(url: server.url("/start"), .redirect(to: location))
        )
    }

    @Test func encryptionIsNotGivenUp() throws {
        let url = try TransferURL("https://a/b")
        #expect(throws: TransferError.unacceptable(url: "https://a/b", .redirect(to: "http://a/c")))
        {
            try RedirectRules().target(of: "http://a/c", from: url, step: 1)
        }
    }

    @Test func everyStepStaysInTheAllowedDomains() async throws {
        server.answer("/start", with: .redirect(to: server.url("/pack", host: "localhost")))
        var request = request("/start")
        request.allowedDomains = AllowedDomains(["127.0.0.1"])
        let error = await failure(of: request, to: part)
        let target = server.url("/pack", host: "localhost")
        #expect(error == .unacceptable(url: target, .domain("localhost")))
        request.allowedDomains = AllowedDomains(["127.0.0.1", "localhost"])
        try await download(request, to: part)
    }

    @Test(arguments: [
        ("example.com", true), ("EXAMPLE.com.", true), ("a.example.com", false),
        ("a.b.cdn.net", true), ("cdn.net", false), ("evilcdn.net", false), ("", false),
    ])
    func domainsAreMatchedWhole(host: String, isAllowed: Bool) {
        #expect(AllowedDomains(["Example.com", "*.cdn.net"]).contains(host) == isAllowed)
    }

    @Test func credentialsStayWithTheirOrigin() async throws {
        var configuration = TransferConfiguration.impatient
        let token = try #require(BearerToken("secret"))
        configuration.bearerTokens = ["127.0.0.1": token, "localhost": token]
        server.answer("/same", with: .redirect(to: "/pack"))
        server.answer("/other", with: .redirect(to: server.url("/pack", host: "localhost")))
        try await download(request("/same"), to: part, configuration)
        try part.remove()
        try await download(request("/other"), to: part, configuration)
        #expect(
            server.requests.map { $0["authorization"] } == [
                "Bearer secret", "Bearer secret", "Bearer secret", nil,
            ]
        )
    }

    @Test func namesInURLsAndNetrcStayWithTheirOrigin() async throws {
        let netrc = "machine localhost login a password b\nmachine 127.0.0.1 login c password d\n"
        try folder.directory.write(Array(netrc.utf8), to: "netrc", durably: false)
        var configuration = TransferConfiguration.impatient
        configuration.netrc = folder.directory.path.appending("netrc")
        let other = "http://u:p@localhost:\(server.port)/pack"
        server.answer("/other", with: .redirect(to: other))
        try await download(request("/other"), to: part, configuration)
        #expect(server.requests.map { $0["authorization"] } == ["Basic Yzpk", nil])
    }

    @Test func secretsAreNotInErrors() async throws {
        server.answer("/gone", with: .status(404))
        let url = "http://user:password@127.0.0.1:\(server.port)/gone"
        let error = await failure(of: DownloadRequest(url, content: [1]), to: part)
        #expect(error == .refused(url: server.url("/gone"), status: 404))
        #expect(server.requests.first?["authorization"] == "Basic dXNlcjpwYXNzd29yZA==")
    }

    @Test func passwordsAreNotSentUnencryptedToOtherMachines() async throws {
        let netrc = "machine example.invalid login a password b\n"
        try folder.directory.write(Array(netrc.utf8), to: "netrc", durably: false)
        var configuration = TransferConfiguration.single
        configuration.netrc = folder.directory.path.appending("netrc")
        // Requests to another machine reach a proxy, which responds instead.
        configuration.proxies = ProxySettings(http: server.baseURL)
        server.answer("http://example.invalid/pack", with: .content(Self.content))
        for url in ["http://example.invalid/pack", "http://u:p@example.invalid/pack"] {
            try await download(
                DownloadRequest(url, content: Self.content),
                to: part,
                configuration
            )
            try part.remove()
        }
        #expect(server.requests.map { $0["authorization"] } == [nil, nil])
        #expect(server.requests.allSatisfy { $0.target == "http://example.invalid/pack" })
    }

    @Test(arguments: [
        "127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "[::1]", "localhost.", "a.localhost",
        "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]",
    ])
    func aProxyIsNotAskedForThisMachine(host: String) async throws {
        var configuration = TransferConfiguration.single
        configuration.proxies = ProxySettings(http: server.baseURL, https: server.baseURL)
        // No server listens at these addresses.
        for target in ["http://127.0.0.1:9/pack", "http://\(host):9/pack"] {
            server.answer(target, with: .content(Self.content))
        }
        let request = DownloadRequest("http://\(host):9/pack", content: Self.content)
        let error = await failure(of: request, to: part, configuration)
        guard case .unreachable = error else {
            Issue.record("expected a refused connection, found \(String(describing: error))")
            return
        }
        #expect(server.requests.isEmpty)
    }

    @Test(arguments: ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"])
    func anOriginThatIsNotTrustedIsNotOnThisMachine(host: String) async throws {
        var request = DownloadRequest(server.url("/pack", host: host), content: Self.content)
        request.trustedOrigins = TrustedOrigins(of: ["https://example.org/manifest.json"])
        let error = await failure(of: request, to: part)
        #expect(error == .unacceptable(url: server.url("/pack", host: host), .localAddress))
        #expect(server.requests.isEmpty)
        request.trustedOrigins = TrustedOrigins(of: [server.url("/manifest.json", host: host)])
        try await download(request, to: part)
        // The only connection is that of the second request: the client did not connect to an untrusted host.
        #expect(server.connectionCount == 1)
    }

    @Test func aProxyOnThisMachineIsAskedForOriginsThatAreNotTrusted() async throws {
        var configuration = TransferConfiguration.single
        configuration.proxies = ProxySettings(http: server.baseURL, https: server.baseURL)
        let url = "http://example.invalid/pack"
        server.answer(url, with: .content(Self.content))
        var request = DownloadRequest(url, content: Self.content)
        request.trustedOrigins = TrustedOrigins(of: [])
        try await download(request, to: part, configuration)
        #expect(server.requests.count == 1)
    }

    @Test(arguments: ["169.254.169.254", "0.0.0.0", "[fe80::1]", "[::ffff:127.0.0.1]"])
    func aProxyIsAskedForNoAddressOfThisMachineOrItsLink(host: String) async throws {
        var configuration = TransferConfiguration.single
        configuration.proxies = ProxySettings(http: server.baseURL, https: server.baseURL)
        let url = "http://\(host):9/pack"
        server.answer(url, with: .content(Self.content))
        var request = DownloadRequest(url, content: Self.content)
        request.trustedOrigins = TrustedOrigins(of: [])
        let error = await failure(of: request, to: part, configuration)
        guard case .unacceptable(_, .localAddress) = error else {
            Issue.record("expected a refusal, found \(String(describing: error))")
            return
        }
        #expect(server.requests.isEmpty)
    }

    /// Exceptions for a proxy, each with `true` if it applies to 'example.invalid'.
    @Test(arguments: [
        ("", false), ("localhost,127.0.0.1", false), ("example", false), ("ample.invalid", false),
        ("other.invalid .example.invalid", true), ("*", true),
    ])
    func aProxyMayHaveThePortOfTheServer(exceptions: String, areOfHost: Bool) async throws {
        var configuration = TransferConfiguration.single
        configuration.proxies = ProxySettings(http: server.baseURL, exceptions: exceptions)
        let url = "http://example.invalid:\(server.port)/pack"
        server.answer(url, with: .content(Self.content))
        var request = DownloadRequest(url, content: Self.content)
        request.trustedOrigins = TrustedOrigins(of: [])
        guard areOfHost else {
            try await download(request, to: part, configuration)
            return
        }
        // Without a proxy, the name cannot be resolved.
        let error = await failure(of: request, to: part, configuration)
        guard case .unreachable = error else {
            Issue.record("expected an unknown host, found \(String(describing: error))")
            return
        }
    }

    /// Targets of a redirect, each with `true` if the transport still makes the document trusted.
    @Test(arguments: [
        ("http://127.0.0.1:PORT/document", true), ("http://localhost:PORT/document", true),
        ("http://example.invalid/document", false), ("//example.invalid/document", false),
        ("http://127.0.0.1.example.invalid/document", false),
        ("http://u:p@127.0.0.1:PORT/document", true),
    ])
    func aTrustedDocumentIsNotLedToAnUntrustedHost(
        location: String,
        isBelieved: Bool
    ) async throws {
        let target = location.replacing("PORT", with: "\(server.port)")
        server.answer("/start", with: .redirect(to: "/middle"))
        server.answer("/middle", with: .redirect(to: target))
        server.answer("/document", with: .content([1]))
        var configuration = TransferConfiguration.single
        configuration.proxies = ProxySettings(http: server.baseURL)
        for host in ["example.invalid", "127.0.0.1.example.invalid"] {
            server.answer("http://\(host)/document", with: .content([2]))
        }
        var request = FetchRequest(mirrors: [server.url("/start")], limit: ByteCount(10))
        request.requiresTrustedTransport = true
        let wanted = request
        do {
            let fetched = try await withEngine(configuration) { try await $0.fetch(wanted) }
            #expect(isBelieved)
            guard case .document(let document) = fetched else {
                Issue.record("expected a document, found \(fetched)")
                return
            }
            #expect(document.bytes == [1])
        } catch let error as TransferError {
            #expect(!isBelieved)
            let middle = server.url("/middle")
            #expect(error == .unacceptable(url: middle, .redirect(to: target)))
        }
    }

    @Test func theProxyIsWhatTheConfigurationSays() async throws {
        var configuration = TransferConfiguration.single
        configuration.proxies = ProxySettings(http: server.baseURL)
        server.answer("http://example.invalid/pack", with: .content(Self.content))
        let request = DownloadRequest("http://example.invalid/pack", content: Self.content)
        try await download(request, to: part, configuration)
        try part.remove()
        configuration.proxies.exceptions = "example.invalid"
        let error = await failure(of: request, to: part, configuration)
        guard case .unreachable("http://example.invalid/pack", .nameLookup, _) = error else {
            Issue.record("expected a failed lookup, found \(String(describing: error))")
            return
        }
    }

    @Test func theUserOfAURLStaysWithItsOrigin() async throws {
        let there = "http://x:y@127.0.0.1:\(server.port)/middle"
        server.answer("/start", with: .redirect(to: there))
        server.answer("/middle", with: .redirect(to: server.url("/other", host: "localhost")))
        server.answer("/other", with: .redirect(to: server.url("/pack")))
        let start = "http://u:p%40@127.0.0.1:\(server.port)/start"
        try await download(DownloadRequest(start, content: Self.content), to: part)
        let sent = server.requests.map { $0["authorization"] }
        #expect(sent == ["Basic dTpwQA==", "Basic dTpwQA==", nil, nil])
    }
}

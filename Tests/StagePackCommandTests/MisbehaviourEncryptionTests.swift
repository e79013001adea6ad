import StageContainer
import StageControl
import StageModel
import StageSystem
import StageTesting
import StagingService
import SystemPackage
import Testing

/// Servers and proxies that misbehave below HTTP, and addresses without a server.
@Suite(.waiting, .server, .directory, .timeLimit(.minutes(5)))
struct MisbehaviourEncryptionTests {
    /// Misbehaviours of a server on an encrypted port, with the message of the program.
    enum Encryption: String, CaseIterable {
        case selfSigned
        case tls1
        case truncated
        case truncatedWithoutLength
        case endsWithoutNotice
        case plain
        case garbage
        case silent
        case reset
        case downgrade

        /// Text of standard error; `nil` for a run that succeeds.
        fileprivate var words: String? {
            switch self {
            case .selfSigned: "is not signed by an authority that this machine trusts"
            case .tls1: "the other side has no TLS version that this machine allows"
            case .truncated: "bytes missing"
            // libcurl treats the end of the connection as the end of the body, so the manifest is incomplete.
            case .truncatedWithoutLength: "not JSON"
            case .endsWithoutNotice: nil
            case .plain, .garbage: "responded without TLS"
            case .silent: "no end of the TLS handshake with 127.0.0.1:"
            case .reset: "connection reset by 127.0.0.1:"
            case .downgrade: "redirects to 'http://127.0.0.1/', which is not allowed"
            }
        }
    }

    private static let server = """
        import socket, ssl, struct, sys, time, warnings
        warnings.simplefilter("ignore")
        kind, pem, body, notes = sys.argv[1:]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        if kind == "tls1":
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1
        content = open(body, "rb").read()
        head = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\n"
        length = b"Content-Length: %d\\r\\n" % len(content)
        answers = {
            "truncated": head + length + b"\\r\\n" + content[:50],
            "truncatedWithoutLength": head + b"\\r\\n" + content[:50],
            "downgrade": b"HTTP/1.1 302 x\\r\\nLocation: http://127.0.0.1/\\r\\n\\r\\n",
        }
        answer = answers.get(kind, head + length + b"\\r\\n" + content)
        listener = socket.create_server(("127.0.0.1", 0))
        with open(notes, "w") as file:
            print(listener.getsockname()[1], file=file)
        while True:
            client, _ = listener.accept()
            try:
                if kind == "silent":
                    time.sleep(30)
                elif kind in ("plain", "garbage"):
                    client.recv(4096)
                    client.sendall(answer if kind == "plain" else b"garbage\\r\\n" * 10)
                elif kind == "reset":
                    client.recv(4096)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    with context.wrap_socket(client, server_side=True) as stream:
                        stream.recv(4096)
                        stream.sendall(answer)
                client.close()
            except OSError:
                pass
        """

    @Test(arguments: Encryption.allCases)
    func theCauseOfAFailedTLSConnectionIsNamed(_ encryption: Encryption) async throws {
        let world = try World()
        let directory = world.directory.path
        let manifest = try world.manifest(of: [])
        try world.directory.write(manifest, to: "manifest.json", durably: false)
        let pem = try await makeCertificate(for: "IP:127.0.0.1", in: directory)
        let notes = directory.appending("notes")
        let body = directory.appending("manifest.json").string
        let server = try PythonScript(
            Self.server,
            encryption.rawValue,
            pem,
            body,
            notes.string
        )
        defer { server.end() }
        try await poll { try text(of: notes).hasSuffix("\n") }
        let url = "https://127.0.0.1:\(try text(of: notes).dropLast())/m"
        var options = ["prefetch", "--quiet", "--attempts", "1", "--connect-timeout", "3"]
        if encryption != .selfSigned { options += ["--cacert", pem] }
        let ending = try await world.program.run(options + world.source(manifest: url))
        guard let words = encryption.words else {
            #expect(ending == Program.Ending(status: 0, output: "", error: ""))
            return
        }
        #expect(ending.status == (encryption == .truncatedWithoutLength ? 11 : 10), "\(ending)")
        for text in [words, "'\(url)'", "\nhint: "] {
            #expect(ending.error.contains(text), "\(ending)")
        }
    }

    @Test(arguments: [
        ("https://127.0.0.1:1/m", "refused by 127.0.0.1:1"),
        ("https://a.invalid/m", "the name of a.invalid:443 cannot be resolved"),
        ("http://[::1]:1/m", "refused by [::1]:1"),
        ("https://[::ffff:127.0.0.1]:1/m", "connection refused by"),
        ("https://127.0.0.1:0/m", "failed"),
        ("https://\(String(repeating: "a", count: 300)).invalid/m", "failed"),
    ])
    func anAddressWithoutAServerIsNamed(url: String, words: String) async throws {
        let world = try World()
        let source = world.source(manifest: url)
        let ending = try await world.program.run(["prefetch", "--attempts", "1"] + source)
        #expect(ending.status == 10, "\(ending)")
        #expect(ending.error.contains(words), "\(ending)")
        #expect(ending.error.contains("'\(url.prefix(8))"), "\(ending)")
        #expect(ending.error.contains("\nhint: "), "\(ending)")
        #expect(ending.error.utf8.count < 2000)
    }

    /// URLs that are not permitted in a manifest or a registration, either.
    @Test(arguments: [
        ("https://[fe80::1%25lo]:1/m", "an IP address, found '[fe80::1%25lo]'"),
        ("https://127.0.0.1:99999/m", "a port up to 65535"),
        ("https://0x7f.1:1/m", "an IP address, found '0x7f.1'"),
        ("https://", "a URL with a host"), ("https://[::1", "a URL with a host"),
        ("https://a b/m", "a URL without spaces"),
        ("https://127.0.0.1:1/\(String(repeating: "a", count: 60_000))", "at most 2048 bytes"),
    ])
    func anAddressThatIsNoneIsAnInvalidCommandLine(url: String, words: String) async throws {
        let world = try World()
        let ending = try await world.program.run(["prefetch"] + world.source(manifest: url))
        #expect(ending.status == 64)
        #expect(ending.error.contains("--manifest: expected"), "\(ending)")
        #expect(ending.error.contains(words), "\(ending)")
        #expect(ending.error.utf8.count < 2000)
    }

    @Test(arguments: [
        ("http://a.invalid/p", 407, 21, "the proxy to 'http://a.invalid/p' requires credentials"),
        ("https://a.invalid/p", 407, 21, "the proxy to 'https://a.invalid/p' requires credentials"),
        ("https://a.invalid/p", 502, 20, "cannot connect to a.invalid:443 (status 502)"),
        ("http://a.invalid/p", 502, 20, "status 502"),
    ])
    func aRefusalOfAProxyIsNotAttributedToTheServer(
        url: String,
        status: Int,
        exit: Int32,
        words: String
    ) async throws {
        var world = try World()
        var pack = try SamplePack.small(.aurora)
        pack.pack.archive?.url = url
        try world.publish(pack)
        for name in ["http_proxy", "https_proxy"] {
            world.program.environment[name] = world.server.baseURL
        }
        for target in [url, "a.invalid:443"] { world.server.answer(target, with: .status(status)) }
        let ending = try await world.run("prefetch", "--quiet", "--attempts", "1")
        #expect(ending.status == exit, "\(ending)")
        #expect(ending.error.contains(words), "\(ending)")
        #expect(ending.error.contains("hint: set http_proxy") == (status == 407), "\(ending)")
        #expect(!ending.error.contains("netrc"))
    }

    /// Nothing listens on the port of the proxy.
    @Test(arguments: ["http://a.invalid/p", "https://a.invalid/p"])
    func aProxyThatCannotBeReachedIsToBeChecked(url: String) async throws {
        var world = try World()
        var pack = try SamplePack.small(.aurora)
        pack.pack.archive?.url = url
        try world.publish(pack)
        for name in ["http_proxy", "https_proxy"] {
            world.program.environment[name] = "http://127.0.0.1:1"
        }
        let ending = try await world.run("prefetch", "--quiet", "--attempts", "1")
        #expect(ending.status == 20, "\(ending)")
        let reason = "connection refused by the proxy 127.0.0.1:1"
        #expect(ending.error.contains(reason), "\(ending)")
        let hint = "hint: check the network and the proxy, then run it again; http_proxy, "
        #expect(ending.error.contains(hint), "\(ending)")
        #expect(ending.error.contains("'/etc/stagepack/stagepack.json'"), "\(ending)")
    }
}

/// Servers that misbehave towards a worker of the daemon.
@Suite(.waiting, .server, .directory, .timeLimit(.minutes(10)))
struct MisbehaviourDaemonTests {
    private static func rows(_ names: Set<String>) -> [MisbehaviourRow] {
        (Misbehaviour.catalogue + Misbehaviour.delays).filter { names.contains($0.name) }
            .map { MisbehaviourRow(misbehaviour: $0, resource: .archive) }
    }

    private static let turnstile = Turnstile(width: 4)

    /// Returns the problem of the pack in the history after the attempts of a worker; `nil` if it is staged.
    private func run(_ row: MisbehaviourRow) async throws -> StagingHistory.Problem? {
        var installed = try await Installed()
        let pack = try SamplePack.small(.aurora)
        try installed.world.publish(pack)
        let server = installed.world.server
        let served = Served(resource: .archive, path: pack.path, content: pack.archive) {
            server.url($0)
        }
        server.answer(pack.path, with: row.misbehaviour.answers(served))
        return try await withDaemon(&installed) { installed, client in
            _ = try await client.stage(["aurora"], of: installed)
            try await poll("the worker tells of no end") {
                try installed.history()?.packs.first != nil
            }
            let entry = try #require(try installed.history()?.packs.first)
            #expect(try installed.staged() == (entry.problem == nil ? ["aurora": 1] : [:]))
            return entry.problem
        }
    }

    @Test(
        arguments: rows([
            "comes in chunks", "has no length", "closes at once, then behaves",
            "changes under the same tag", "begins with garbage", "has two lengths",
            "encodes as gzip", "answers with 404", "redirects to itself",
            "redirects to 'file:///etc/passwd'", "sends without end: fields",
            "sends without end: interim", "switches protocols unasked", "has too long a length",
            "has the right length and other bytes", "has the length '-5'", "never ends",
            "answers 206 unasked",
        ])
    )
    func theContentIsRightOrTheFailureIsNamed(_ row: MisbehaviourRow) async throws {
        try await Self.turnstile.pass {
            let problem = try await run(row)
            guard case .fails(let failure, let words) = row.outcome else {
                #expect(problem == nil, "\(row)")
                return
            }
            let message = problem?.message ?? ""
            #expect(problem?.kind == failure.kind.rawValue, "\(row): \(message)")
            #expect(message.contains(words), "\(row): \(message)")
            #expect(message.contains("'http://"), "\(row): \(message)")
        }
    }
}

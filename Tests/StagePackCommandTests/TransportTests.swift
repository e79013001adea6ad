import Glibc
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Transports over which the program trusts a manifest, with a proxy between it and the servers.
@Suite(.server, .directory)
struct TransportTests {
    /// A world in which the server is also the proxy: it responds for every other host.
    private func proxied() throws -> World {
        var world = try World()
        try world.publish(try .small(.aurora))
        for name in ["http_proxy", "all_proxy", "https_proxy"] {
            world.program.environment[name] = world.server.baseURL
        }
        return world
    }

    @Test func aManifestThatLeadsToAnotherMachineIsNotBelieved() async throws {
        let world = try proxied()
        let manifest = try world.manifest(of: [try .small(.aurora)])
        let other = "http://example.invalid/manifest.json"
        world.server.answer("/start", with: .redirect(to: other))
        world.server.answer(other, with: .content(manifest))
        let source = world.source(manifest: world.server.url("/start"))
        let ending = try await world.program.run(["prefetch", "--attempts", "1"] + source)
        #expect(ending.status == 10)
        #expect(ending.error.contains("/start' redirects to '\(other)', which is not allowed"))
        #expect(world.server.requests(for: other).isEmpty)
        #expect(try world.staged(.aurora) == nil)
    }

    @Test func aProxyDoesNotAnswerForThisMachine() async throws {
        let world = try proxied()
        let manifest = try world.manifest(of: [try .small(.aurora)])
        // Nothing listens on this port.
        let url = "http://127.0.0.1:9/manifest.json"
        world.server.answer(url, with: .content(manifest))
        let source = world.source(manifest: url)
        let ending = try await world.program.run(["prefetch", "--attempts", "1"] + source)
        #expect(ending.status == 10)
        #expect(world.server.requests.isEmpty)
    }

    /// Requests a manifest from `localhost.`, which the machine's own table resolves to an address.
    ///
    /// The test has its own network, with an address outside of the loopback range that also
    /// responds.
    @Test(
        .rootInMountNamespace,
        arguments: [("127.0.0.1", true), ("::1", true), ("198.51.100.1", false)]
    )
    func thisMachineIsWhereTheConnectionLeads(address: String, isAsked: Bool) async throws {
        var world = try World()
        let served = try world.directory.makeDirectory("served")
        let manifest = try world.manifest(of: [try .small(.aurora)])
        try served.write(manifest, to: "manifest.json", durably: false)
        let hosts = Array("\(address) localhost.\n".utf8)
        try world.directory.write(hosts, to: "hosts", durably: false)
        let script = """
            ip link set lo up && ip addr add 198.51.100.1/32 dev lo \
                && mount --bind "$1/hosts" /etc/hosts || exit 99
            python3 -m http.server 8000 --bind :: --directory "$1/served" 2>"$1/notes" >&2 &
            until python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8000))'; do
                sleep 0.1
            done 2>/dev/null
            shift
            "$@"
            status=$?
            kill $!
            exit $status
            """
        world.program.wrapper = [
            "/usr/bin/unshare", "-n", "-m", "/bin/sh", "-c", script, "sh",
            world.directory.path.string, try Program.path.string,
        ]
        let source = world.source(manifest: "http://localhost.:8000/manifest.json")
        let ending = try await world.program.run(["plan", "--attempts", "1"] + source)
        #expect(ending.status == (isAsked ? 0 : 10), "\(ending)")
        let notes = try text(of: world.directory.path.appending("notes"))
        #expect(notes.contains("GET /manifest.json") == isAsked, "\(notes)")
    }

    @Test(arguments: ["https://user:secret@example.invalid/m", "http://user:secret@127.0.0.1/m"])
    func aPasswordOnTheCommandLineIsNeitherKeptNorShown(url: String) async throws {
        let world = try World()
        for command in [["prefetch"], ["plan"], ["fetch", "aurora"], ["load", "aurora"]] {
            let ending = try await world.program.run(command + world.source(manifest: url))
            #expect(ending.status == 64, "\(command) \(ending)")
            #expect(!(ending.error + ending.output).contains("secret"))
        }
        #expect(!FileStatus.exists(world.container))
    }

    /// Offers TLS up to a version, and writes its port to a file.
    private static let oldServer = """
        import socket, ssl, sys, warnings
        warnings.simplefilter("ignore")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion[sys.argv[2]]
        context.load_cert_chain(sys.argv[1])
        listener = socket.create_server(("127.0.0.1", 0))
        with open(sys.argv[3], "w") as notes:
            print(listener.getsockname()[1], file=notes)
        while True:
            client, _ = listener.accept()
            try:
                with context.wrap_socket(client, server_side=True) as stream:
                    stream.recv(4096)
                    stream.sendall(b"HTTP/1.1 404 x\\r\\nContent-Length: 0\\r\\n\\r\\n")
            except OSError:
                pass
        """

    @Test(.rootInMountNamespace, arguments: [("TLSv1_1", false), ("TLSv1_2", true)])
    func tlsIsAtLeastVersion12EvenIfTheSystemAllowsLess(
        version: String,
        isAccepted: Bool
    ) async throws {
        let world = try World()
        let directory = world.directory.path
        let lax = """
            openssl_conf = main
            [main]
            ssl_conf = ssl
            [ssl]
            system_default = lax
            [lax]
            MinProtocol = TLSv1
            CipherString = ALL:@SECLEVEL=0
            """
        try world.directory.write(Array(lax.utf8), to: "openssl.cnf", durably: false)
        let pem = try await makeCertificate(for: "IP:127.0.0.1", in: directory)
        let notes = directory.appending("notes")
        let server = try PythonScript(Self.oldServer, pem, version, notes.string)
        defer { server.end() }
        try await poll { try text(of: notes).hasSuffix("\n") }
        let port = try text(of: notes).dropLast()
        let script = #"mount --bind "$1" /etc/ssl/openssl.cnf || exit 99; shift; exec "$@""#
        let program = Program(
            wrapper: [
                "/usr/bin/unshare", "-m", "/bin/sh", "-c", script, "sh",
                directory.appending("openssl.cnf").string, try Program.path.string,
            ]
        )
        let url = "https://127.0.0.1:\(port)/m"
        let arguments = ["prefetch", "--attempts", "1", "--cacert", pem]
        let ending = try await program.run(arguments + world.source(manifest: url))
        #expect(ending.status == 10)
        #expect(ending.error.contains("was answered with status 404") == isAccepted, "\(ending)")
    }
}

import Foundation
import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// WebSocket tasks of a program whose environment names proxies and a certificate authority.
///
/// The program does not run as root, which ignores an authority in the environment.
@Suite(.directory, .server) struct WebSocketEncryptionTests {
    /// A name that cannot be resolved: only the proxy connects to it.
    private static let name = "chat.test"
    private static let tunnel = "\(name):443"
    private static let talk = ["opened", "received hello", "closed 1001", "completed well"]

    private let folder: FilePath
    private let program: FilePath
    /// A place where another user than root may execute the program.
    private let programs: InstalledPrograms?

    init() throws {
        let directory = try TemporaryDirectory.required()
        folder = directory.path
        let name = try #require(folder.lastComponent)
        try Directory.open(folder.removingLastComponent())
            .changeMode(
                of: name,
                to: [.ownerReadWriteExecute, .groupReadExecute, .otherReadExecute]
            )
        programs = geteuid() == 0 ? try InstalledPrograms() : nil
        try programs?.install("websocket-task-client")
        program =
            try programs?.path.appending("websocket-task-client")
            ?? BuiltProgram.path(ofTestProgram: "websocket-task-client")
        TestServer.current.answer("/socket", with: .webSocket { peer in peer.echo() })
    }

    /// Runs the program with variables, and returns the lines that it prints.
    ///
    /// Repeats a run in which the server's close frame came after its time limit of five seconds, as on a busy machine.
    private func run(_ url: String, _ variables: String...) async throws -> [String] {
        let late = Self.talk.filter { !$0.hasPrefix("closed") }
        var lines = late
        for number in 1...10 where lines == late {
            let log = folder.appending("client-\(number).log")
            lines = try await runOnce(with: url, variables: variables, log: log)
        }
        return lines
    }

    private func runOnce(
        with url: String,
        variables: [String],
        log: FilePath
    ) async throws -> [String] {
        var command: [String] = []
        if geteuid() == 0 {
            command += ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        }
        command += ["/usr/bin/env", "-i"] + variables
        command += [program.string, url]
        let process = try StartedProcess(command, log: log)
        try await poll("the program does not end") { process.status != nil }
        #expect(process.status == 0)
        let output = try File.open(reading: log).readAll(limit: 1 << 20)
        return String(decoding: output, as: UTF8.self).split(separator: "\n").map { String($0) }
    }

    /// Expects that each run has sent requests with these methods.
    private func expectRequests(
        methods: [String],
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        let found = TestServer.current.requests.map(\.method)
        let runs = max(found.count / methods.count, 1)
        let expected = (0..<runs).flatMap { _ in methods }
        #expect(found == expected, sourceLocation: sourceLocation)
    }

    /// Sets the server to be a proxy to a port, too, for clients with `credential` if there is one.
    private func serveTunnel(toPort port: Int, credential: String? = nil, _ target: String) {
        let field = credential.map { "Basic \(Data($0.utf8).base64EncodedString())" }
        TestServer.current.answer(
            target,
            with: .script { wire in
                guard field == nil || wire.request["proxy-authorization"] == field else {
                    wire.send("HTTP/1.1 407 Proxy Authentication Required\r\n")
                    wire.send("Proxy-Authenticate: Basic realm=\"proxy\"\r\n")
                    wire.send("Content-Length: 0\r\nConnection: close\r\n\r\n")
                    return
                }
                wire.send("HTTP/1.1 200 Connection established\r\n\r\n")
                wire.tunnel(toPort: port)
            }
        )
    }

    private func front(names: String) async throws -> TLSFront {
        try await TLSFront(port: TestServer.current.port, below: folder, names: names)
    }

    /// URL of the server as a proxy, with a user's part if there is one.
    private func proxy(_ user: String = "") -> String {
        "http://\(user)127.0.0.1:\(TestServer.current.port)"
    }

    @Test(arguments: ["CURL_CA_BUNDLE", "SSL_CERT_FILE"])
    func aPrivateAuthorityIsBelieved(variable: String) async throws {
        let front = try await front(names: "IP:127.0.0.1")
        let url = "wss://127.0.0.1:\(front.port)/socket"
        #expect(try await run(url, "\(variable)=\(front.certificate)") == Self.talk)
    }

    @Test func anotherAuthorityIsRefused() async throws {
        let front = try await front(names: "IP:127.0.0.1")
        let lines = try await run("wss://127.0.0.1:\(front.port)/socket")
        #expect(lines.count == 1)
        #expect(lines.first?.hasPrefix("completed -1202: ") == true)
        #expect(lines.first?.contains("is not signed by an authority") == true)
        #expect(TestServer.current.requests.isEmpty)
    }

    @Test func aCertificateOfAnotherHostIsRefused() async throws {
        let front = try await front(names: "DNS:\(Self.name)")
        let url = "wss://127.0.0.1:\(front.port)/socket"
        let lines = try await run(url, "CURL_CA_BUNDLE=\(front.certificate)")
        #expect(lines.count == 1)
        #expect(lines.first?.hasPrefix("completed -1202: ") == true)
        #expect(TestServer.current.requests.isEmpty)
    }

    @Test func aProxyTunnelsToAnEncryptedServer() async throws {
        let front = try await front(names: "DNS:\(Self.name)")
        serveTunnel(toPort: front.port, Self.tunnel)
        let lines = try await run(
            "wss://\(Self.name)/socket",
            "https_proxy=\(proxy())",
            "CURL_CA_BUNDLE=\(front.certificate)"
        )
        #expect(lines == Self.talk)
        expectRequests(methods: ["CONNECT", "GET"])
        #expect(TestServer.current.requests.last?["host"] == Self.name)
    }

    @Test func aServerBehindAProxyIsVerified() async throws {
        let front = try await front(names: "DNS:other.test")
        serveTunnel(toPort: front.port, Self.tunnel)
        let lines = try await run(
            "wss://\(Self.name)/socket",
            "https_proxy=\(proxy())",
            "CURL_CA_BUNDLE=\(front.certificate)"
        )
        #expect(lines.count == 1)
        #expect(lines.first?.hasPrefix("completed -1202: ") == true)
        #expect(TestServer.current.requests.map(\.method) == ["CONNECT"])
    }

    @Test func aProxyTunnelsToAPlainServer() async throws {
        serveTunnel(toPort: TestServer.current.port, "\(Self.name):80")
        let lines = try await run("ws://\(Self.name)/socket", "http_proxy=\(proxy())")
        #expect(lines == Self.talk)
        expectRequests(methods: ["CONNECT", "GET"])
    }

    @Test func aProxyGetsTheCredentialsOfItsURL() async throws {
        let front = try await front(names: "DNS:\(Self.name)")
        serveTunnel(toPort: front.port, credential: "ann:pass word", Self.tunnel)
        let lines = try await run(
            "wss://\(Self.name)/socket",
            "https_proxy=\(proxy("ann:pass%20word@"))",
            "CURL_CA_BUNDLE=\(front.certificate)"
        )
        #expect(lines == Self.talk)
        // The credentials are only for the proxy.
        let last = TestServer.current.requests.last
        #expect(last?.method == "GET")
        #expect(last?["authorization"] == nil && last?["proxy-authorization"] == nil)
    }

    @Test(arguments: ["", "ann:wrong@"])
    func aProxyWithoutItsCredentialsRefuses(user: String) async throws {
        serveTunnel(toPort: 1, credential: "ann:pass", Self.tunnel)
        let lines = try await run("wss://\(Self.name)/socket", "https_proxy=\(proxy(user))")
        #expect(lines.count == 1)
        #expect(
            lines.first
                == "completed -1011: the proxy to 'https://\(Self.name)/socket' requires credentials "
                + "(status 407)"
        )
    }

    @Test func anExceptionIsReachedWithoutTheProxy() async throws {
        // The name has no address, and the proxy would have connected to it.
        serveTunnel(toPort: TestServer.current.port, "\(Self.name):80")
        let lines = try await run(
            "ws://\(Self.name)/socket",
            "http_proxy=\(proxy())",
            "no_proxy=.test"
        )
        #expect(lines.count == 1)
        #expect(lines.first?.hasPrefix("completed -1004: ") == true)
        #expect(TestServer.current.requests.isEmpty)
    }
}

import CCurl
import Glibc
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageTransfer

/// The messages for connections that fail: each names host and port.
@Suite(.server) struct FailedConnectionTests {
    let server = TestServer.current
    let folder: TemporaryDirectory
    let part: PartialFile

    init() throws {
        folder = try TemporaryDirectory()
        part = try PartialFile.open("pack", in: folder.directory)
    }

    /// URLs of servers, proxies, and whether a request may look up a name.
    static let peers: [(String, String?, Bool)] = [
        ("http://192.0.2.1/", nil, false), ("http://[2001:db8::1]:8080/", nil, false),
        ("http://a.example/", nil, true), ("http://192.0.2.1/", "p.example:1080", true),
        ("http://192.0.2.1/", "http://192.0.2.2:1080", false),
        ("http://a.example/", "192.0.2.2:1080", true),
    ]

    @Test(arguments: peers)
    func addressesAreNotLookedUp(_ url: String, _ proxy: String?, _ isLookedUp: Bool) throws {
        var configuration = TransferConfiguration()
        configuration.proxies.http = proxy
        #expect(configuration.mayLookUpName(for: try TransferURL(url)) == isLookedUp)
    }

    private func detail(
        of url: String,
        _ configuration: TransferConfiguration = .single
    ) async -> String? {
        let request = DownloadRequest(url, content: [1])
        switch await failure(of: request, to: part, configuration) {
        case .unreachable(url, _, let detail), .untrusted(url, _, let detail): return detail
        case let other:
            Issue.record("expected a failed connection, found \(String(describing: other))")
            return nil
        }
    }

    @Test(arguments: [
        ("http://127.0.0.1:1/a", "connection refused by 127.0.0.1:1"),
        ("https://127.0.0.1:1/a", "connection refused by 127.0.0.1:1"),
        ("http://[::1]:1/a", "connection refused by [::1]:1"),
        ("http://localhost:1/a", "connection refused by localhost:1"),
        ("http://a.invalid/a", "the name of a.invalid:80 cannot be resolved"),
        ("https://a.invalid/a", "the name of a.invalid:443 cannot be resolved"),
        // The kernel refuses to connect to a multicast address, and sends nothing.
        ("http://224.0.0.1:9/a", "the network of 224.0.0.1:9 cannot be reached from this machine"),
    ])
    func aServerThatCannotBeReachedIsNamed(url: String, words: String) async {
        #expect(await detail(of: url) == words)
    }

    @Test(arguments: ["http", "https"])
    func anAddressWithoutARouteHasAFaultOfItsOwn(scheme: String) async {
        let request = DownloadRequest("\(scheme)://224.0.0.1:9/a", content: [1])
        guard case .unreachable(_, .noRoute, _) = await failure(of: request, to: part, .single)
        else {
            Issue.record("expected an address without a route")
            return
        }
    }

    @Test(arguments: ["http", "https"])
    func aProxyThatCannotBeReachedIsNamed(scheme: String) async {
        let rows = [
            ("127.0.0.1:1", "connection refused by the proxy 127.0.0.1:1"),
            ("http://user:secret@[::1]:1", "connection refused by the proxy [::1]:1"),
            ("socks5h://127.0.0.1:1", "connection refused by the proxy 127.0.0.1:1"),
            ("proxy.invalid", "the name of the proxy proxy.invalid:1080 cannot be resolved"),
        ]
        for (proxy, words) in rows {
            var configuration = TransferConfiguration.single
            configuration.proxies = ProxySettings(http: proxy, https: proxy)
            #expect(await detail(of: "\(scheme)://a.invalid/a", configuration) == words)
            configuration.proxies.exceptions = "a.invalid"
            let port = scheme == "http" ? 80 : 443
            #expect(
                await detail(of: "\(scheme)://a.invalid/a", configuration)
                    == "the name of a.invalid:\(port) cannot be resolved"
            )
        }
    }

    @Test(
        arguments: [("127.0.0.1:1", .connect), ("proxy.invalid", .nameLookup)]
            as [(String, TransferError.ConnectionFault)]
    )
    func aFaultOfTheProxyIsNotOneOfTheServer(
        proxy: String,
        fault: TransferError.ConnectionFault
    ) async {
        var configuration = TransferConfiguration.single
        configuration.proxies = ProxySettings(http: proxy)
        let request = DownloadRequest("http://a.invalid/a", content: [1])
        guard
            case .unreachable(_, let found, _) = await failure(
                of: request,
                to: part,
                configuration
            )
        else {
            Issue.record("expected a proxy that cannot be reached")
            return
        }
        #expect(found == .proxy(fault))
    }

    /// libcurl's message contains the setting with its password.
    @Test(arguments: ["foo://user:secret@a:1", "http://user:secret@a:99999", "http://user:secret@"])
    func aProxyThatCannotBeOneIsNotReportedWithItsPassword(proxy: String) async {
        var configuration = TransferConfiguration.single
        configuration.proxies = ProxySettings(http: proxy, https: proxy)
        for scheme in ["http", "https"] {
            #expect(
                await detail(of: "\(scheme)://b.invalid/a", configuration)
                    == "the configured proxy is not valid: expected 'http://HOST:PORT', also with https, "
                    + "socks4, socks4a, socks5 or socks5h"
            )
        }
    }

    @Test(arguments: [
        ("Can't complete SOCKS5 connection to h. (1)", "it gives no reason"),
        ("Can't complete SOCKS5 connection to h. (2)", "its rules forbid that"),
        ("Can't complete SOCKS5 connection to h. (3)", "it cannot reach the network"),
        ("Can't complete SOCKS5 connection to h. (4)", "it cannot reach the host"),
        ("Can't complete SOCKS5 connection to h. (5)", "the host refuses connections"),
        ("Can't complete SOCKS5 connection to h. (6)", "the host does not respond"),
        ("No authentication method was acceptable.", "it requires credentials"),
        ("m", "m"),
    ])
    func theReasonOfAProxyOfSOCKSHasItsWords(message: String, words: String) {
        var end = ExchangeEnd(code: CURLE_PROXY, detail: message)
        end.connection = FailedConnection(server: "h:443", serverPort: 443)
        end.connection?.proxy = FailedConnection.Proxy("socks5h://p:1080")
        #expect(end.explanation == "the proxy p:1080 cannot connect to h:443: \(words)")
    }

    @Test(arguments: [
        (403, "refused a connection to a.invalid:443 (status 403)"),
        (502, "cannot connect to a.invalid:443 (status 502)"),
    ])
    func aProxyThatOpensNoTunnelIsNamed(status: Int, words: String) async {
        var configuration = TransferConfiguration.single
        configuration.proxies = ProxySettings(https: server.baseURL)
        server.answer("a.invalid:443", with: .status(status))
        let address = server.baseURL.dropFirst("http://".count)
        #expect(
            await detail(of: "https://a.invalid/a", configuration)
                == "the proxy \(address) \(words)"
        )
    }

    @Test func aConnectionThatEndsEarlyIsNamed() async {
        let address = server.baseURL.dropFirst("http://".count)
        server.answer("/empty", with: .dropped)
        #expect(
            await detail(of: server.url("/empty"))
                == "connection closed by \(address) without a response"
        )
        server.answer("/short", with: .content([1]).field("Content-Length", "1").cut(after: 0))
        #expect(
            await detail(of: server.url("/short"))
                == "connection closed by \(address) with 1 byte missing"
        )
    }

    @Test func aServerThatAcceptsNoConnectionIsNamedWithTheTimeLimit() async throws {
        let queue = try FullQueue()
        var configuration = TransferConfiguration.single
        configuration.connectTimeout = .seconds(2)
        let address = "127.0.0.1:\(queue.port)"
        #expect(
            await detail(of: "http://\(address)/a", configuration)
                == "no connection to \(address) within 2 seconds"
        )
        configuration.proxies = ProxySettings(http: address)
        #expect(
            await detail(of: "http://a.invalid/a", configuration)
                == "no connection to the proxy \(address) within 2 seconds"
        )
        withExtendedLifetime(queue) {}
    }

    @Test func aCertificateThatIsRefusedIsNamedWithTheReason() async throws {
        let front = try await TLSFront(
            port: server.port,
            below: folder.directory.path,
            names: "DNS:other.example"
        )
        var configuration = TransferConfiguration.single
        let url = front.baseURL + "/a"
        let address = "127.0.0.1:\(front.port)"
        #expect(
            await detail(of: url, configuration)
                == "the certificate of \(address) is not signed by an authority that this machine "
                + "trusts"
        )
        configuration.certificateAuthorities = front.certificate
        #expect(
            await detail(of: url, configuration)
                == "the certificate of \(address) is for another host"
        )
        configuration.certificateAuthorities = "/nonexistent"
        let words = await detail(of: url, configuration)
        #expect(words?.hasPrefix("the trusted authorities cannot be loaded: ") == true)
        #expect(words?.contains("/nonexistent") == true)
    }

    /// The certificate of a proxy is verified like that of a server.
    @Test func aCertificateOfAProxyThatIsRefusedIsNamedWithTheReason() async throws {
        let front = try await TLSFront(port: server.port, below: folder.directory.path)
        var configuration = TransferConfiguration.single
        configuration.proxies = ProxySettings(https: front.baseURL)
        #expect(
            await detail(of: "https://a.invalid/a", configuration)
                == "the certificate of the proxy 127.0.0.1:\(front.port) is not signed by an "
                + "authority that this machine trusts"
        )
        // The authorities of the configuration apply to proxies, too.
        configuration.certificateAuthorities = front.certificate
        #expect(
            await detail(of: "https://a.invalid/a", configuration)
                == "the proxy 127.0.0.1:\(front.port) refused a connection to a.invalid:443 "
                + "(status 404)"
        )
    }

    /// libcurl's result code, `errno` and message, with the resulting message.
    private static let rows: [(CURLcode, Int32, String, String)] = [
        (CURLE_COULDNT_CONNECT, EHOSTUNREACH, "m", "no route to h:80"),
        (
            CURLE_COULDNT_CONNECT, EADDRNOTAVAIL, "m",
            "this machine has no free address for a connection to h:80"
        ),
        (
            CURLE_COULDNT_CONNECT, EPERM, "m",
            "a rule of this machine forbids connections to h:80"
        ),
        (CURLE_COULDNT_CONNECT, ECONNRESET, "m", "connection reset by h:80"),
        (CURLE_COULDNT_CONNECT, EMFILE, "m", "no connection to h:80: Too many open files"),
        (CURLE_COULDNT_CONNECT, 0, "m", "no connection to h:80: m"),
        (CURLE_RECV_ERROR, ECONNRESET, "m", "connection reset by h:80"),
        (CURLE_SEND_ERROR, EPIPE, "m", "connection reset by h:80"),
        (CURLE_RECV_ERROR, ETIMEDOUT, "m", "h:80 no longer responds"),
        (
            CURLE_RECV_ERROR, EADDRNOTAVAIL, "m",
            "this machine has lost the address of its connection to h:80"
        ),
        (CURLE_RECV_ERROR, 0, "another message", "another message"),
        (
            CURLE_SSL_CONNECT_ERROR, ECONNRESET, "m",
            "connection reset by h:80 during the TLS handshake"
        ),
        (
            CURLE_SSL_CONNECT_ERROR, 0, "OpenSSL/3: error:1:SSL routines::tlsv1 alert internal",
            "the TLS handshake with h:80 failed: tlsv1 alert internal"
        ),
        (
            CURLE_SSL_CONNECT_ERROR, 0, "OpenSSL/3: error:1:SSL routines::wrong version number",
            "h:80 responded without TLS"
        ),
        (
            CURLE_SSL_CONNECT_ERROR, 0, "error:1:SSL routines::sslv3 alert handshake failure",
            "the TLS handshake with h:80 failed: the other side accepts none of the offered ciphers, or "
                + "requires a client certificate"
        ),
        (
            CURLE_SSL_CONNECT_ERROR, 0, "error:1:SSL routines::tlsv1 alert protocol version",
            "the TLS handshake with h:80 failed: the other side has no TLS version that this "
                + "machine allows"
        ),
        (
            CURLE_SSL_CONNECT_ERROR, 0, "error:1:SSL routines::unsupported protocol",
            "the TLS handshake with h:80 failed: the other side has no TLS version that this "
                + "machine allows"
        ),
        (
            CURLE_SSL_CONNECT_ERROR, 0, "error:1:SSL routines::tlsv1 unrecognized name",
            "the TLS handshake with h:80 failed: the other side has no certificate for this name"
        ),
        (
            CURLE_RECV_ERROR, 0,
            "error:1:SSL routines::tlsv13 alert certificate required, errno 0",
            "a client certificate is required by h:80"
        ),
        (
            CURLE_SSL_CONNECT_ERROR, 0, "OpenSSL SSL_connect: SSL_ERROR_SYSCALL",
            "connection closed by h:80 during the TLS handshake"
        ),
        (CURLE_READ_ERROR, 0, "m", "m"),
    ]

    @Test(arguments: rows.indices)
    func aSystemErrorHasItsWords(index: Int) {
        let (code, number, message, words) = Self.rows[index]
        var end = ExchangeEnd(code: code, detail: message)
        end.connection = FailedConnection(server: "h:80", serverPort: 80)
        end.connection?.systemError = number
        #expect(end.explanation == words)
    }

    @Test(arguments: [
        "Illegal or missing hexadecimal sequence in chunked-encoding",
        "Malformed encoding found in chunked-encoding",
        "chunk hex-length char not a hex digit: 0x78", "chunk hex-length longer than 16",
        "invalid chunk size: 'x'",
    ])
    func malformedChunksHaveTheirWords(message: String) {
        var end = ExchangeEnd(code: CURLE_RECV_ERROR, detail: message)
        end.connection = FailedConnection(server: "h:80", serverPort: 80)
        #expect(end.explanation == "h:80 sent a malformed chunked response")
    }

    @Test(arguments: [
        ("[fe80::1]", linkLocal), ("[FEBF::1]", linkLocal), ("[fec0::1]", "Invalid argument"),
        ("[fe8::1]", "Invalid argument"),
    ])
    func aLinkLocalAddressNeedsAnInterface(host: String, reason: String) {
        var end = ExchangeEnd(code: CURLE_COULDNT_CONNECT, detail: "m")
        end.connection = FailedConnection(server: "\(host):80", serverPort: 80)
        end.connection?.systemError = EINVAL
        #expect(end.explanation == "no connection to \(host):80: \(reason)")
    }

    private static let linkLocal =
        "a link-local address needs a network interface; use another address or a host name"

    @Test(arguments: [
        (9, "is not valid yet by this machine's clock"),
        (10, "has expired by this machine's clock"),
        (19, "is not signed by an authority that this machine trusts"),
        (62, "is for another host"), (23, "cannot be verified: m"),
    ])
    func aResultOfVerificationHasItsWords(result: Int, words: String) {
        var end = ExchangeEnd(code: CURLE_PEER_FAILED_VERIFICATION, detail: "m")
        end.certificate = result
        end.connection = FailedConnection(server: "h:443", serverPort: 443)
        #expect(end.certificateFault.explanation == "the certificate of h:443 \(words)")
    }
}

/// A listener whose queue of connections is full: the kernel ignores further ones.
private final class FullQueue: Sendable {
    let port: Int
    private let listener: CInt
    private let waiting: [CInt]

    init() throws {
        listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let listener = listener
        let isListening = unsafe withUnsafeMutablePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                unsafe bind(listener, pointer, size) == 0 && listen(listener, 0) == 0
                    && getsockname(listener, pointer, &size) == 0
            }
        }
        try #require(isListening)
        port = Int(UInt16(bigEndian: address.sin_port))
        waiting = (0..<3).map { _ in
            let kind = Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue)
            let descriptor = socket(AF_INET, kind, 0)
            unsafe withUnsafePointer(to: address) { pointer in
                unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                    _ = unsafe connect(descriptor, pointer, size)
                }
            }
            return descriptor
        }
    }

    deinit { for descriptor in waiting + [listener] { close(descriptor) } }
}

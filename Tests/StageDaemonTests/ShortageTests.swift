import Glibc
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Resource shortages: the daemon either reports them and exits, or serves; it never traps.
@Suite(.serialized, .directory, .daemon, .server)
struct DaemonShortageTests {
    private let daemon: DaemonProcess

    init() throws { daemon = try .required() }

    /// Starts the daemon with the limit, and returns whether it began to serve; otherwise it must have reported the reason.
    private func serves(_ limit: String) async throws -> Bool {
        try daemon.configure(#"{"retryBase": 0.05, "settlingTime": 0}"#)
        try daemon.launch(by: ["/usr/bin/prlimit", limit])
        try await poll("the daemon neither begins nor ends") {
            let said = FileStatus.exists(daemon.log) ? try daemon.said() : ""
            return daemon.status != nil || said.contains("Ready")
        }
        guard let status = daemon.status else { return true }
        let said = try daemon.said()
        // The loader of programs exits with a status of its own.
        if status == 127, said.contains("shared libraries") { return false }
        #expect(status == 71, "\(said)")
        #expect(said.hasPrefix("stagepackd: error: "), "\(said)")
        #expect(said.contains(": raise the limit ("), "\(said)")
        #expect(said.split(separator: "\n").count == 1)
        return false
    }

    @Test(arguments: [3, 4, 5, 6, 8, 12, 16, 20] + Array(24...44) + [64, 128, 200, 255, 256])
    func withFewDescriptorsItDoesNotBegin(_ count: Int) async throws {
        #expect(try await !serves("--nofile=\(count):\(count)"))
    }

    @Test func withAsManyDescriptorsAsItNeedsItServesTransfersAndCrowds() async throws {
        // The limit covers the descriptors that the daemon needs, and those that it inherits.
        #expect(try await serves("--nofile=300:300"))
        let server = TestServer.current
        server.answer("/slow", with: .content(noise(8 << 20)).slowed(to: 1 << 20))
        for session in 0..<4 {
            try await daemon.makeSession("s\(session)")
            for number in 0..<20 {
                let host = number % 2 == 0 ? "127.0.0.1" : "localhost"
                let url = "http://\(host):\(server.port)/slow"
                try await daemon.download(url, token: "\(number)", in: "s\(session)")
            }
        }
        var clients: [UnixSocket] = []
        for _ in 0..<2000 {
            let client = try UnixSocket.connect(to: daemon.socket)
            // The daemon closes a connection beyond the limit at once, perhaps before the client has sent its request.
            try? client.send(Array("GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n".utf8))
            clients.append(client)
            if clients.count > 200 { clients.removeFirst().shutDown() }
        }
        _ = try await daemon.client.status()
        for client in clients { client.shutDown() }
        #expect(try await daemon.kill(SIGTERM) == 0)
    }

    @Test(arguments: [200, 240, 280, 320]) func withLittleAddressSpaceItDoesNotBeginOrServes(
        _ mebibytes: Int
    ) async throws {
        if try await serves("--as=\(mebibytes << 20)") {
            try await daemon.makeSession()
            #expect(try await daemon.kill(SIGTERM) == 0)
        }
    }
}

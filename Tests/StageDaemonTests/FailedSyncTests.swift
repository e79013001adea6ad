import StageControl
import StageTesting
import SystemPackage
import Testing

/// Syncs of a download that fail: the kernel drops what it could not write, and the next sync would succeed without it.
@Suite(.directory, .daemon, .server, .tracing)
struct FailedSyncTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current
    private let trace: FilePath

    init() throws {
        daemon = try .required()
        trace = daemon.directory.appending("trace")
        try daemon.configure(#"{"settlingTime": 0}"#)
    }

    /// Starts the daemon; syncs of the first generation of its first download fail as on a full disk.
    private func start() async throws {
        let part = daemon.state.appending("parts/task-1.part.1").string
        try await daemon.start(by: [
            "/usr/bin/strace", "-f", "-qq", "-o", trace.string, "-e", "signal=none", "-P", part,
            "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=ENOSPC",
        ])
        try await daemon.makeSession()
    }

    /// Expects the content from a second request, which asks for all of it.
    private func expectContent(_ body: [UInt8]) async throws {
        let event = try #require(try await daemon.outcomes().first)
        #expect(event.kind == .completed)
        #expect(try bytes(of: FilePath(try #require(event.location))) == body)
        #expect(server.requests(for: "/a").map(\.rangeStart) == [nil, nil])
    }

    @Test func contentWhoseSyncFailsIsReceivedAgain() async throws {
        let body = noise(300_000)
        server.answer("/a", with: .content(body))
        try await start()
        try await daemon.download(server.url("/a"))
        try await expectContent(body)
    }

    @Test func bytesWhoseCheckpointFailsAreReceivedAgain() async throws {
        let body = noise(12 << 20)
        let gate = Gate()
        let answer = Answer.content(body)
        server.answer("/a", with: answer.held(after: 9 << 20, until: gate), answer)
        try await start()
        try await daemon.download(server.url("/a"))
        try await poll("no checkpoint fails") { try text(of: trace).contains("ENOSPC") }
        gate.open()
        try await expectContent(body)
    }
}

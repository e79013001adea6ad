import Glibc
import StageControl
import StageTesting
import SystemPackage
import Testing

/// Partial files that cannot be read at the moment.
@Suite(.directory, .daemon, .server, .mountedFileSystems, .fuse)
struct SlowPartialFileTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current

    init() throws { daemon = try .required() }

    /// Creates a download that waits for a long time after it has received a part.
    private func interruptedDownload() async throws -> Int64 {
        server.answer("/cut", with: .content(noise(4 << 20)).cut(after: 1 << 20))
        let id = try await daemon.download(server.url("/cut"))
        try await daemon.wait(for: [.backoff], of: id)
        return id
    }

    @Test(arguments: [false, true])
    func aRecordThatIsSlowToReadDelaysItsTaskAlone(producesResumeToken: Bool) async throws {
        try daemon.configure(#"{"settlingTime": 0, "retryBase": 3600}"#)
        try await daemon.start()
        try await daemon.makeSession()
        try await daemon.makeSession("other")
        let id = try await interruptedDownload()
        let names = try daemon.names(in: "parts").filter { $0.hasSuffix(".state") }
        let record = try #require(names.first)
        let path = daemon.state.appending("parts").appending(record)
        let mount = try await SilentMounts.mount(on: path, for: daemon)
        defer { unsafe #expect(umount2(path.string, CInt(MNT_DETACH)) == 0) }
        var change = TransferChange()
        change.state = .cancelled
        change.producesResumeToken = producesResumeToken
        let (client, cancellation) = (daemon.client, change)
        let cancelling = Task { try await client.change(id, by: cancellation) }
        try await poll("the record is not read") {
            try SilentMounts.requestCount(for: daemon) > 0
        }
        server.answer("/a", with: .content(noise(1000)))
        let other = try await daemon.download(server.url("/a"), in: "other")
        let events = try await daemon.outcomes(of: "other")
        #expect(events.map(\.gist) == ["1 completed of \(other)"])
        // Reading fails with the end of the file system.
        mount.send(SIGKILL)
        #expect(try await cancelling.value.state == .cancelled)
    }
}

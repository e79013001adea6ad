import Glibc
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Partial files that cannot be read at the moment.
@Suite(.directory, .daemon, .server, .mountedFileSystems, .fuse)
struct SlowPartialFileTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current

    init() throws { daemon = try .required() }

    private var log: FilePath { daemon.directory.appending("mounts.log") }

    /// Mounts a file system that never responds on a file, for the daemon alone; it ends with the returned process.
    private func mount(on path: FilePath) async throws -> StartedProcess {
        let program = daemon.directory.appending("mounts.py")
        try Directory.open(daemon.directory)
            .write(Array(SilentMounts.program.utf8), to: "mounts.py", durably: false)
        let number = try #require(daemon.process)
        let command = [
            "/usr/bin/nsenter", "--mount", "--target", "\(number)", "/usr/bin/python3",
            program.string, path.string,
        ]
        // The program ends with its parent, which must therefore not be a thread of the tests.
        let script = #""$@" & wait"#
        let process = try StartedProcess(["/bin/sh", "-c", script, "sh"] + command, log: log)
        try await poll("the file system is not mounted") { try text(of: log).contains("mounted") }
        return process
    }

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
        try await daemon.start(by: ["/usr/bin/unshare", "--mount"])
        try await daemon.makeSession()
        try await daemon.makeSession("other")
        let id = try await interruptedDownload()
        let names = try daemon.names(in: "parts").filter { $0.hasSuffix(".state") }
        let record = try #require(names.first)
        let mount = try await mount(on: daemon.state.appending("parts").appending(record))
        var change = TransferChange()
        change.state = .cancelled
        change.producesResumeToken = producesResumeToken
        let (client, cancellation) = (daemon.client, change)
        let cancelling = Task { try await client.change(id, by: cancellation) }
        try await poll("the record is not read") { try text(of: log).contains("request") }
        server.answer("/a", with: .content(noise(1000)))
        let other = try await daemon.download(server.url("/a"), in: "other")
        let events = try await daemon.outcomes(of: "other")
        #expect(events.map(\.gist) == ["1 completed of \(other)"])
        // Reading fails with the end of the file system.
        mount.send(SIGKILL)
        #expect(try await cancelling.value.state == .cancelled)
    }
}

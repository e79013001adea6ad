import Glibc
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Content that was verified, and did not have its place yet when the power went.
@Suite(
    .directory,
    .daemon,
    .server,
    .enabled("killing at system calls takes strace") { await Tracer.isAvailable }
)
struct VerifiedContentTests {
    @Test func verifiedContentGetsItsPlaceAfterAnotherBoot() async throws {
        let daemon = try DaemonProcess.required()
        let server = TestServer.current
        let body = content(300_000)
        server.answer("/a", with: .content(body))
        try daemon.configure(#"{"settlingTime": 0}"#)
        let place = daemon.state.appending("staged/\(UserIdentity.current.user)").string
        let renames = "rename,renameat,renameat2"
        try await daemon.start(by: [
            "/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", "-e", "signal=none", "-P", place,
            "-e", "trace=\(renames)", "-e", "inject=\(renames):signal=KILL:when=1",
        ])
        try await daemon.makeSession()
        let id = try await daemon.download(server.url("/a"))
        _ = try await daemon.end()
        try changeBoot(of: id, in: try Directory.open(daemon.state.appending("parts")))
        try await daemon.start()
        let event = try #require(try await daemon.outcomes().first)
        #expect(event.kind == .completed)
        #expect(try bytes(of: FilePath(try #require(event.location))) == body)
        #expect(server.requests(for: "/a").count == 1)
    }

    /// Has the record of a part say that another run of the kernel wrote it.
    private func changeBoot(of task: Int64, in parts: Directory) throws {
        let component = try #require(FilePath.Component("task-\(task).state"))
        let record = try text(of: parts.path.appending(component))
        // Nothing but the journal says that the bytes are on disk.
        try #require(record.contains(#""durable":0"#), "\(record)")
        let field = #/"boot":"[^"]*"/#
        try #require(record.contains(field), "\(record)")
        let changed = record.replacing(field, with: #""boot":"another""#)
        try parts.write(Array(changed.utf8), to: component, durably: false)
    }
}

import Foundation
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The sample as a process of its own, against a daemon that transfers nothing.
@Suite(.directory, .mountNamespaceIfRoot)
struct SampleDownloadsTests {
    private static let session = "com.example.background-downloads"

    private let daemon: TestDaemon
    private let folder: FilePath

    init() throws {
        let directory = try TemporaryDirectory.required()
        daemon = TestDaemon(path: "\(directory.path)/stagepack/control.sock")
        _ = try directory.makeDirectory("stagepack")
        daemon.stage(in: directory.path.string)
        folder = directory.path.appending("downloads")
        try daemon.start()
    }

    /// Starts the sample.
    private func start(
        _ arguments: [String],
        _ environment: [String: String] = [:],
        by wrapper: [String] = []
    ) throws -> Process {
        let tests = try #require(FilePath("/proc/self/exe").resolved)
        let process = Process()
        let program = tests.removingLastComponent().appending("background-downloads").string
        var command = wrapper + [program] + arguments
        if geteuid() == 0 {
            // As root, the program ignores the socket in its environment and uses the system's daemon.
            let run = FilePath(daemon.path).removingLastComponent().removingLastComponent().string
            let script = #"mount --bind "$1" /run || exit 99; shift; exec "$@""#
            command = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", script, "sh", run] + command
        }
        process.executableURL = URL(fileURLWithPath: command[0])
        process.arguments = Array(command.dropFirst())
        process.environment = environment.merging([
            "STAGEPACK_SOCKET": daemon.path, "DOWNLOADS_FOLDER": folder.string,
        ]) { $1 }
        try process.run()
        return process
    }

    private func exitStatus(_ process: Process) async throws -> Int32 {
        try await poll { !process.isRunning }
        return process.terminationStatus
    }

    @Test func aProcessStartsADownloadAndEnds() async throws {
        // A process that ends waits for the daemon for three seconds, which may be too short on a busy machine.
        for _ in 0..<10 where !daemon.tasks.contains(where: { $0.state == .waiting }) {
            let process = try start(["get", "http://host/folder/file"])
            #expect(try await exitStatus(process) == 0)
        }
        let task = try #require(daemon.tasks.first { $0.state == .waiting })
        #expect(task.request.description == "file")
        #expect(task.request.headers == ["User-Agent": "background-downloads"])
        daemon.stop()
    }

    @Test(.strace, arguments: [1, 2])
    func aSessionWithoutThreadsIsAnErrorAndNoTrap(_ moment: Int) async throws {
        // The main thread starts the two threads of the session, of which one is refused.
        let log = folder.removingLastComponent().appending("calls")
        let strace = [
            "/usr/bin/strace", "-o", log.string, "-e", "trace=clone3", "-e",
            "inject=clone3:error=EAGAIN:when=\(moment)",
        ]
        let process = try start(["get", "http://host/file"], by: strace)
        // The sample ends with 1 if its delegate receives the error before the program ends.
        #expect([0, 1].contains(try await exitStatus(process)))
        #expect(process.terminationReason == .exit)
        let calls = try File.open(reading: log).readAll(limit: 1 << 20)
        #expect(String(decoding: calls, as: UTF8.self).contains("(INJECTED)"))
        #expect(daemon.requests.filter { $0.line.hasPrefix("POST") }.isEmpty)
        daemon.stop()
    }

    @Test func aLaunchedProcessTakesEventsInAndAcknowledgesTheLaunch() async throws {
        let client = ControlClient(path: daemon.path)
        try await client.makeSession(Self.session, configuration: SessionConfiguration())
        var request = TransferRequest(token: "t", kind: .download, url: "http://host/file")
        request.description = "target"
        #expect(try await client.createTasks([request], in: Self.session) == [1])
        let staged = folder.removingLastComponent().appending("staged")
        try Data("content".utf8).write(to: URL(fileURLWithPath: staged.string))
        var event = SessionEvent(.completed, time: .now)
        event.task = 1
        event.location = staged.string
        daemon.emit(event, in: Self.session)
        let process = try start(
            [],
            ["STAGEPACK_SESSION": Self.session, "STAGEPACK_LAUNCH": "launch"]
        )
        // The process handled all events without help, perhaps before a poll could see it attached.
        #expect(try await exitStatus(process) == 0)
        #expect(daemon.launches == ["launch"])
        let attachment = daemon.requests.first { $0.line.contains("/events?") }
        #expect(attachment?.line.hasSuffix("/events?after=0&launch=launch") == true)
        #expect(daemon.session(Self.session)?.acknowledgedEvent == 1)
        let target = URL(fileURLWithPath: folder.appending("target").string)
        #expect(try Data(contentsOf: target) == Data("content".utf8))
        #expect(!FileManager.default.fileExists(atPath: staged.string))
        daemon.stop()
    }
}

import FoundationEssentials
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Content that was verified, but not yet moved to its place when the power failed.
@Suite(.directory, .daemon, .server, .tracing)
struct VerifiedContentTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current
    private let body = noise(300_000)

    init() throws {
        daemon = try .required()
        try daemon.configure(#"{"settlingTime": 0}"#)
        server.answer("/a", with: .content(body))
    }

    /// Starts the daemon with a fault at its first renaming into its user's directory.
    private func start(with fault: String) async throws {
        let path = daemon.state.appending("staged/\(UserIdentity.current.user)").string
        let renames = "rename,renameat,renameat2"
        try await daemon.start(by: [
            "/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", "-e", "signal=none", "-P", path,
            "-e", "trace=\(renames)", "-e", "inject=\(renames):\(fault):when=1",
        ])
    }

    /// Downloads a file, and kills the daemon before the file is moved to its place; returns the task.
    private func fetchContentThatCannotBeMoved() async throws -> Int64 {
        try await start(with: "signal=KILL")
        try await daemon.makeSession()
        let id = try await daemon.download(server.url("/a"))
        _ = try await daemon.end()
        return id
    }

    private func expectContent() async throws {
        let event = try #require(try await daemon.outcomes().first)
        #expect(event.kind == .completed)
        #expect(try bytes(of: FilePath(try #require(event.location))) == body)
        #expect(server.requests(for: "/a").count == 1)
    }

    @Test func verifiedContentIsMovedAfterAnotherBoot() async throws {
        let id = try await fetchContentThatCannotBeMoved()
        let parts = try Directory.open(daemon.state.appending("parts"))
        try changeBoot(of: id, in: parts)
        // A file of an earlier version of the content is not mistaken for the verified one.
        let other = try #require(FilePath.Component("task-\(id).part.7"))
        try parts.write(noise(300_000, seed: 7), to: other, durably: false)
        try await daemon.start()
        try await expectContent()
    }

    @Test func verifiedContentWaitsToBeMoved() async throws {
        let id = try await fetchContentThatCannotBeMoved()
        try await start(with: "error=ENOSPC")
        // The task waits for the disk for 15 seconds only, and the log keeps the reason.
        try await poll("the content is not refused") {
            try daemon.said().split(separator: "\n").contains {
                $0.contains("A download could not be committed") && $0.contains("No space left")
            }
        }
        // The move is tried again after 15 seconds, perhaps by another thread, for which strace injects the fault once more.
        try await poll("it is never tried again") {
            try await daemon.client.task(id).state == .completed
        }
        try await expectContent()
    }

    /// Changes the record of a partial file so that another boot seems to have written it.
    private func changeBoot(of task: Int64, in parts: Directory) throws {
        let component = try #require(FilePath.Component("task-\(task).state"))
        let record = try text(of: parts.path.appending(component))
        // Only the journal says that the bytes are on disk.
        try #require(record.contains(#""durable":0"#), "\(record)")
        let field = #/"boot":"[^"]*"/#
        try #require(record.contains(field), "\(record)")
        let changed = record.replacing(field, with: #""boot":"another""#)
        try parts.write(Array(changed.utf8), to: component, durably: false)
    }
}

/// Content that cannot be moved to its place.
@Suite(.directory, .daemon, .server)
struct UnplacedContentTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current
    private let name: FilePath.Component

    init() throws {
        daemon = try .required()
        name = try #require(FilePath.Component("\(UserIdentity.current.user)"))
    }

    private var staged: Directory {
        get throws { try Directory.open(daemon.state.appending("staged")) }
    }

    /// Starts a daemon for a user whose directory has the name of a file.
    private func startWithoutDestination() async throws {
        try daemon.configure(#"{"settlingTime": 0}"#)
        server.answer("/a", with: .content(noise(300_000)).ignoringRanges())
        try await daemon.start()
        try await daemon.makeSession()
        try staged.write([], to: name, durably: false)
    }

    /// Downloads content that cannot be moved to its place.
    private func fetchContentThatCannotBeMoved() async throws -> Int64 {
        try await startWithoutDestination()
        let id = try await daemon.download(server.url("/a"))
        try await daemon.wait(for: [.backoff], of: id)
        return id
    }

    @Test func aClientReceivesTheWaitOfContentThatCannotBeMoved() async throws {
        try await startWithoutDestination()
        let id = try await daemon.download(server.url("/a")) { $0.isSuspended = true }
        let stream = try await daemon.attach()
        defer { stream.close() }
        // A client that attaches first receives the current state, and then events.
        _ = try await stream.take { event in
            event.pendingReasons?.contains { $0.kind == .pausedByClient } ?? false
        }
        try await daemon.change(id, to: .running)
        let events = try await stream.take { event in
            event.pendingReasons?.contains { $0.kind == .backoff } ?? false
        }
        let event = try #require(events.last)
        #expect(event.task == id)
        // The move is repeated after 15 seconds, and after 30 if it fails again; the client receives this time, too.
        let until = try #require(event.pendingReasons?.first { $0.kind == .backoff }?.until)
        #expect(until.timeIntervalSince(event.time) < 16, "\(event)")
    }

    @Test func contentThatCannotBeMovedIsCancelled() async throws {
        let id = try await fetchContentThatCannotBeMoved()
        #expect(try await daemon.change(id, to: .cancelled).state == .cancelled)
        try await poll("the content stays") {
            try Directory.open(daemon.state.appending("parts")).entries().isEmpty
        }
    }

    @Test func contentThatCannotBeMovedWaitsAndIsNotReceivedAgain() async throws {
        let id = try await fetchContentThatCannotBeMoved()
        // The daemon tries again after 15 seconds, and the task then waits for nothing for a moment.
        let reason = try await pollForValue("it says no reason") {
            try await daemon.client.task(id).pendingReasons.first { $0.problem != nil }
        }
        #expect(reason.problem?.contains("/staged/\(name.string)'") == true, "\(reason)")
        try staged.remove(name)
        try await daemon.change(id, to: .unpaused)
        try await daemon.wait(for: .completed, of: id)
        #expect(server.requests(for: "/a").count == 1)
    }
}

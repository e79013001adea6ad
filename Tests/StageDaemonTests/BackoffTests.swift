import FoundationEssentials
import StageControl
import StageDigest
import StageModel
import StageTesting
import Testing

/// Retry delays that end early, because a client attached or the host became reachable.
@Suite(.directory, .daemon, .server)
struct BackoffTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current

    init() throws { daemon = try .required() }

    private func start() async throws {
        // The first retry delay is half an hour on average.
        try daemon.configure(#"{"retryBase": 3600}"#)
        try await daemon.start()
        try await daemon.makeSession()
    }

    private func download(
        _ path: String,
        in session: String = "s",
        digest: Digest? = nil
    ) async throws -> Int64 {
        var request = TransferRequest(token: path, kind: .download, url: server.url(path))
        request.sha256 = digest.map { "\($0)" }
        return try #require(try await daemon.client.createTasks([request], in: session).first)
    }

    /// Begins a download that fails at first, and waits until it is in its retry delay.
    private func failing(
        _ path: String,
        _ answer: Answer = .status(503),
        digest: Digest? = nil
    ) async throws -> Int64 {
        server.answer(path, with: answer, .content([1, 2, 3]))
        let id = try await download(path, digest: digest)
        try await poll("the task is not put off") {
            try await daemon.client.task(id).pendingReasons.map(\.kind) == [.backoff]
        }
        return id
    }

    private func hasCompleted(_ id: Int64) async throws {
        // The task's retry delay exceeds the time limit of the poll, so the task completes only if the event ends the delay.
        try await poll("the task goes on waiting") {
            try await daemon.client.task(id).state == .completed
        }
    }

    @Test(arguments: [TransferChange.State.running, .unpaused])
    func resumingATaskEndsItsDelay(state: TransferChange.State) async throws {
        try await start()
        let id = try await failing("/a")
        try await daemon.change(id, to: state)
        try await hasCompleted(id)
    }

    @Test func aPersonMayAskAServerThatAskedToBeLeftAlone() async throws {
        try await start()
        server.answer("/a", with: .status(503).field("Retry-After", "600"), .content([1]))
        let id = try await download("/a")
        try await poll("the task is not put off") {
            try await daemon.client.task(id).pendingReasons.map(\.kind) == [.server]
        }
        try await daemon.change(id, to: .running)
        #expect(try await daemon.client.task(id).pendingReasons.map(\.kind) == [.server])
        try await daemon.change(id, to: .unpaused)
        try await hasCompleted(id)
    }

    @Test(arguments: [429, 503])
    func aServerThatAsksForADelayGetsNoOtherRequestOfTheUser(status: Int) async throws {
        try await start()
        server.answer("/a", with: .status(status).field("Retry-After", "600"), .content([1]))
        server.answer("/b", with: .content([2]))
        let first = try await download("/a")
        try await daemon.wait(for: [.server], of: first)
        let second = try await download("/b")
        try await daemon.wait(for: [.server], of: second)
        #expect(server.requests(for: "/b").isEmpty)
        try await daemon.change(second, to: .unpaused)
        try await hasCompleted(second)
        #expect(server.requests(for: "/a").count == 1)
    }

    @Test(arguments: [false, true])
    func aPersonWaitsForNoDelayOfAnotherTask(restarts: Bool) async throws {
        try await start()
        server.answer("/a", with: .status(503).field("Retry-After", "600"), .content([1]))
        server.answer("/b", with: .content([2]))
        let promoted = try await daemon.download(server.url("/b")) { $0.isSuspended = true }
        var change = TransferChange()
        change.promotes = true
        try await daemon.client.change(promoted, by: change)
        if restarts {
            try await daemon.kill()
            try await daemon.start()
        }
        let delayed = try await download("/a")
        try await daemon.wait(for: [.server], of: delayed)
        // The priority of the request does not undo the promotion.
        change = TransferChange()
        change.state = .running
        change.priority = 0.5
        try await daemon.client.change(promoted, by: change)
        try await hasCompleted(promoted)
        #expect(server.requests(for: "/a").count == 1)
    }

    @Test func aDelayAfterARedirectIsThatOfTheTarget() async throws {
        try await start()
        let target = server.url("/b", host: "localhost")
        server.answer("/a", with: .redirect(to: target))
        server.answer("/b", with: .status(503).field("Retry-After", "600"), .content([1]))
        server.answer("/c", with: .content([2]))
        let redirected = try await download("/a")
        try await daemon.wait(for: [.server], of: redirected)
        try await hasCompleted(try await download("/c"))
        let direct = try await daemon.download(server.url("/d", host: "localhost"))
        try await daemon.wait(for: [.server], of: direct)
    }

    /// Mirrors may be on other hosts.
    @Test func aTaskWithMirrorsIgnoresTheDelayOfItsHostAfterARestart() async throws {
        try await start()
        server.answer("/a", with: .status(503).field("Retry-After", "600"), .content([1]))
        server.answer("/b", with: .content([2]))
        let mirrored = try await daemon.download(server.url("/b")) {
            $0.mirrors = [server.url("/c")]
            $0.sha256 = sha256([2])
            $0.isSuspended = true
        }
        try await daemon.kill()
        try await daemon.start()
        try await daemon.wait(for: [.server], of: try await download("/a"))
        try await daemon.change(mirrored, to: .running)
        try await hasCompleted(mirrored)
    }

    @Test func aClientThatComesWaitsForNothing() async throws {
        try await start()
        let id = try await failing("/a")
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
    }

    @Test func aHostThatIsThereAgainIsAskedForEverything() async throws {
        try await start()
        let lost = try await failing("/a", Answer.content([1, 2, 3]).cut(after: 0))
        let refused = try await failing("/b")
        server.answer("/c", with: .content([1]))
        try await hasCompleted(try await download("/c"))
        try await hasCompleted(lost)
        // The server was reached, and refused the request.
        #expect(try await daemon.client.task(refused).pendingReasons.map(\.kind) == [.backoff])
        #expect(server.requests(for: "/b").count == 1)
    }

    /// Returns a response with many header fields.
    private func longHead(status: Int) -> Answer {
        var answer = Answer.status(status)
        for number in 0..<200 { answer = answer.field("X-\(number)", "v") }
        return answer
    }

    /// Makes the heads of the responses to unfinished tasks exceed the limit, and returns the number of tasks that have header
    /// fields.
    private func exceedLimitOfHeads() async throws -> Int {
        server.answer("/a", with: longHead(status: 503))
        try await daemon.downloads(1000, of: server.url("/a")) { _ in }
        try await poll("not all tasks are tried") { server.counts(for: "/a").requests >= 1000 }
        try await poll("not all tasks have a response") {
            try await daemon.client.tasks().allSatisfy { $0.response?.status == 503 }
        }
        return try await daemon.client.tasks().count { $0.response?.headers.isEmpty == false }
    }

    /// The heads of responses to unfinished tasks are in the daemon's memory.
    @Test func theHeadsOfAUsersTasksHaveALimit() async throws {
        try await start()
        let kept = try await exceedLimitOfHeads()
        #expect((1..<1000).contains(kept), "\(kept)")
    }

    @Test func theFinalEventOfAFailureHasItsHeadBeyondTheLimit() async throws {
        try await start()
        let kept = try await exceedLimitOfHeads()
        try #require(kept < 1000)
        server.answer("/missing", with: longHead(status: 404))
        let id = try await download("/missing")
        // A client that attached would end the delays of the other tasks.
        try await daemon.wait(for: .failed, of: id)
        let events = try await daemon.events { $0.task == id && $0.kind == .failed }
        let response = try #require(events.last?.response)
        #expect(response.status == 404)
        #expect(response.headers.count { $0.last == "v" } == 200, "\(response)")
    }

    @Test func aTaskForTheSameContentDoesNotWaitForTheDelayOfAnother() async throws {
        try await start()
        try await daemon.client.makeSession("t", configuration: SessionConfiguration())
        let digest = Digest(of: [1, 2, 3])
        let first = try await failing("/a", digest: digest)
        let second = try await download("/a", in: "t", digest: digest)
        try await hasCompleted(second)
        try await hasCompleted(first)
        #expect(server.requests(for: "/a").count == 2)
    }
}

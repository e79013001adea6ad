import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Tasks that fail instead of waiting (`failsWithoutRetry`).
@Suite(.directory, .daemon, .server)
struct FailWithoutRetryTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current

    init() async throws {
        daemon = try .required()
        // The first retry delay is half an hour on average.
        try daemon.configure(#"{"retryBase": 3600, "bytesPerUser": \#(20 << 20)}"#)
        try await daemon.start()
        try await daemon.makeSession()
    }

    /// Creates a download that fails instead of waiting.
    private func download(
        _ path: String,
        token: String? = nil,
        _ change: (inout TransferRequest) -> Void = { _ in }
    ) async throws -> Int64 {
        try await daemon.download(server.url(path), token: token) { request in
            request.failsWithoutRetry = true
            change(&request)
        }
    }

    /// Waits until a task has failed, and returns its failure.
    private func failure(of id: Int64) async throws -> TransferFailure {
        try await daemon.wait(for: .failed, of: id)
        let events = try await daemon.events { $0.task == id && $0.kind == .failed }
        return try #require(events.last?.failure)
    }

    @Test(arguments: [nil, "600"] as [String?])
    func aServerThatIsBusyEndsTheTask(retryAfter: String?) async throws {
        var busy = Answer.status(503)
        if let retryAfter { busy = busy.field("Retry-After", retryAfter) }
        server.answer("/a", with: busy, .content([1]))
        let ended = try await failure(of: try await download("/a"))
        #expect(ended.kind == .refused && ended.status == 503)
        #expect(server.requests(for: "/a").count == 1)
    }

    @Test func aConnectionThatBreaksEndsTheTask() async throws {
        server.answer("/a", with: Answer.content([1, 2]).cut(after: 0), .content([1, 2]))
        let ended = try await failure(of: try await download("/a"))
        #expect(ended.kind == .unreachable)
    }

    @Test func aDelayOfTheHostEndsTheTask() async throws {
        server.answer("/a", with: .status(503).field("Retry-After", "600"))
        try await daemon.wait(for: [.server], of: try await daemon.download(server.url("/a")))
        let ended = try await failure(of: try await download("/b"))
        #expect(ended.reason == "the server has requested a delay")
        #expect(server.requests(for: "/b").isEmpty)
    }

    @Test func aDelayFromBeforeThePromotionEndsNothing() async throws {
        server.answer("/a", with: .status(503), .content([1]))
        let id = try await daemon.download(server.url("/a"))
        try await daemon.wait(for: [.backoff], of: id)
        var change = TransferChange()
        change.promotes = true
        change.failsWithoutRetry = true
        try await daemon.client.change(id, by: change)
        try await daemon.wait(for: .completed, of: id)
    }

    @Test func aChangeAppliesToADelayThatHasBegun() async throws {
        server.answer("/a", with: .status(503), .content([1]))
        let id = try await daemon.download(server.url("/a"))
        try await daemon.wait(for: [.backoff], of: id)
        var change = TransferChange()
        change.failsWithoutRetry = true
        try await daemon.client.change(id, by: change)
        #expect(try await failure(of: id).status == 503)
        #expect(server.requests(for: "/a").count == 1)
    }

    @Test func theRuleOutlivesTheDaemon() async throws {
        for path in ["/a", "/b"] {
            server.answer(path, with: .status(503).field("Retry-After", "600"), .content([1]))
        }
        let created = try await download("/a") { $0.isSuspended = true }
        let changed = try await daemon.download(server.url("/b")) { $0.isSuspended = true }
        var change = TransferChange()
        change.failsWithoutRetry = true
        try await daemon.client.change(changed, by: change)
        try await daemon.kill()
        try await daemon.start()
        for id in [created, changed] {
            #expect(try await daemon.client.task(id).request.failsWithoutRetry == true)
            try await daemon.change(id, to: .running)
            try await daemon.wait(for: .failed, of: id)
        }
    }

    @Test func aTaskDoesNotWaitForAnotherOneWithItsContent() async throws {
        server.answer("/a", with: .status(503))
        server.answer("/b", with: .content([1]))
        let first = try await daemon.download(server.url("/a")) { $0.sha256 = sha256([1]) }
        try await daemon.wait(for: [.backoff], of: first)
        let second = try await download("/b") { $0.sha256 = sha256([1]) }
        try await daemon.wait(for: .completed, of: second)
        #expect(server.requests(for: "/a").count == 1)
    }

    @Test func aQuotaThatIsUsedUpEndsTheTask() async throws {
        server.answer("/a", with: .content(noise(12 << 20)))
        server.answer("/b", with: .content(noise(12 << 20, seed: 2)))
        try await daemon.download(server.url("/a"))
        let location = try #require(try await daemon.outcomes().first?.location)
        let ended = try await failure(of: try await download("/b"))
        #expect(ended.kind == .storage)
        // A file that was moved away no longer counts, which the daemon sees when it searches.
        let path = FilePath(location)
        let name = try #require(path.lastComponent)
        try Directory.open(path.removingLastComponent())
            .rename(name, to: "taken", in: Directory.open(daemon.directory))
        let next = try await download("/b", token: "next")
        try await daemon.wait(for: .completed, of: next)
    }

    @Test func aStagingHasNoSuchRule() async throws {
        try await daemon.makeSession("t/1") { $0.isTransient = true }
        var request = TransferRequest(token: "1", kind: .staging, url: "net.example.game")
        request.staging = StagingJob()
        request.staging?.application = "net.example.game"
        request.staging?.event = "periodic"
        request.failsWithoutRetry = true
        let refused = request
        let error = await #expect(throws: ControlError.self) {
            _ = try await daemon.client.createTasks([refused], in: "t/1")
        }
        guard case .refused(let refusal)? = error else {
            Issue.record("expected a refusal, found \(String(describing: error))")
            return
        }
        #expect(refusal.code == .invalid)
    }

    @Test func aUserMayHaveAThousandSuchTasks() async throws {
        let url = server.url("/a")
        try await daemon.downloads(1000, of: url) { request in
            request.isSuspended = true
            request.failsWithoutRetry = true
        }
        let other = try await daemon.download(url) { $0.isSuspended = true }
        var change = TransferChange()
        change.failsWithoutRetry = true
        let wanted = change
        for refused in [
            await #expect(throws: ControlError.self) {
                _ = try await download("/a", token: "more")
            },
            await #expect(throws: ControlError.self) {
                _ = try await daemon.client.change(other, by: wanted)
            },
        ] {
            guard case .refused(let refusal)? = refused else {
                Issue.record("expected a refusal, found \(String(describing: refused))")
                continue
            }
            #expect(refusal.code == .quota)
        }
    }
}

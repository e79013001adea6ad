import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A request that the server may have acted on is not sent twice.
@Suite(.directory, .daemon, .server)
struct UploadRepetitionTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current

    init() throws { daemon = try .required() }

    private func upload(
        _ size: Int = 1000,
        _ change: (inout TransferRequest) -> Void = { _ in }
    ) async throws -> Int64 {
        let directory = try TemporaryDirectory.required()
        try directory.write(noise(size), to: "file", durably: false)
        var request = TransferRequest(token: "u", kind: .upload, url: server.url("/in"))
        request.file = directory.path.appending("file").string
        change(&request)
        return try #require(try await daemon.client.createTasks([request], in: "s").first)
    }

    /// Waits until the server has received the whole body `count` times.
    private func received(_ count: Int) async throws {
        try await poll("the server got no body") { server.bodies(for: "/in").count == count }
    }

    /// Expects that a task fails since the server, which was asked once, may have acted on it.
    private func expectLostAnswer(
        of id: Int64,
        at location: SourceLocation = #_sourceLocation
    ) async throws {
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 failed of \(id)"], sourceLocation: location)
        let reason = events.first?.failure?.reason ?? ""
        #expect(reason.contains("may have acted on"), sourceLocation: location)
        #expect(server.requests(for: "/in").count == 1, sourceLocation: location)
    }

    private func start() async throws {
        try daemon.configure(#"{"retryBase": 0.05}"#)
        try await daemon.start()
        try await daemon.makeSession { $0.answersChallenges = false }
    }

    @Test(arguments: ["POST", "PUT", "PATCH"], [401, 404, 422, 429, 500, 503])
    func anAnswerIsDelivered(to method: String, status: Int) async throws {
        try await start()
        server.answer("/in", with: Answer(content: Array("no".utf8)).with { $0.status = status })
        let id = try await upload { $0.method = method }
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(events.first?.response?.status == status)
        #expect(events.first?.body == Data("no".utf8))
        #expect(server.requests(for: "/in").count == 1)
    }

    @Test func aClientMaySayThatARequestIsIdempotent() async throws {
        try await start()
        server.answer("/in", with: .status(500), .status(503), .content([1]))
        let id = try await upload { $0.isIdempotent = true }
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(events.first?.response?.status == 200)
        #expect(server.requests(for: "/in").count == 3)
    }

    @Test func aLostAnswerIsAFailure() async throws {
        try await start()
        let lost = Answer.content([]).with { $0.dropsBodyAfter = 1000 }
        server.answer("/in", with: lost, .content([1]))
        let id = try await upload()
        try await expectLostAnswer(of: id)
    }

    @Test(arguments: [SIGKILL, SIGTERM])
    func aDaemonThatEndsBeforeTheAnswerLeavesAFailure(signal: Int32) async throws {
        try await start()
        let gate = Gate()
        defer { gate.open() }
        server.answer("/in", with: Answer.content([1]).waiting(for: gate))
        let id = try await upload()
        try await received(1)
        try await daemon.kill(signal)
        try await daemon.start()
        try await expectLostAnswer(of: id)
        #expect(try daemon.names(in: "snapshots") == [])
    }

    @Test(arguments: ["POST", "PUT"])
    func anUploadThatWasSentInPartIsRepeatedByTheNextDaemon(method: String) async throws {
        try daemon.configure(#"{"retryBase": 3600}"#)
        try await daemon.start()
        try await daemon.makeSession()
        let lost = Answer.content([1]).with { $0.dropsBodyAfter = 1 }
        server.answer("/in", with: lost, .content([1]))
        let id = try await upload(32 << 20) { $0.method = method }
        try await poll("the task is not put off") {
            try await daemon.client.task(id).pendingReasons.map(\.kind) == [.backoff]
        }
        try await daemon.kill()
        try await daemon.start()
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        try await received(1)
    }

    @Test(arguments: ["POST", "PUT"])
    func aServerThatTakesItsTimeIsNotAskedTwice(method: String) async throws {
        try daemon.configure(#"{"retryBase": 0.05}"#)
        try await daemon.start()
        try await daemon.makeSession { $0.requestTimeout = 1 }
        let gate = Gate()
        defer { gate.open() }
        server.answer("/in", with: Answer.content([1]).waiting(for: gate))
        let id = try await upload { $0.method = method }
        guard method == "PUT" else { return try await expectLostAnswer(of: id) }
        try await poll("the request is not repeated") { server.requests(for: "/in").count > 1 }
        // On a busy machine, even this response may take longer than a second.
        server.answer("/in", with: .content([1]))
        #expect(try await daemon.outcomes().map(\.gist) == ["1 completed of \(id)"])
    }

    @Test func aDownloadThatPostsIsNotAskedForByTheNextDaemon() async throws {
        try await start()
        let gate = Gate()
        defer { gate.open() }
        server.answer("/in", with: Answer.content([1]).waiting(for: gate), .content([1]))
        var request = TransferRequest(token: "d", kind: .download, url: server.url("/in"))
        request.method = "POST"
        let id = try #require(try await daemon.client.createTasks([request], in: "s").first)
        try await poll("the server was not asked") { server.requests(for: "/in").count == 1 }
        try await daemon.kill()
        try await daemon.start()
        try await expectLostAnswer(of: id)
    }

    @Test func anUploadThatIsPausedWaitsForItsAnswer() async throws {
        try await start()
        let gate = Gate()
        defer { gate.open() }
        server.answer("/in", with: Answer.content([1]).waiting(for: gate))
        let id = try await upload()
        try await received(1)
        try await daemon.change(id, to: .suspended)
        gate.open()
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(server.requests(for: "/in").count == 1)
    }

    @Test func aDownloadThatPostsIsAskedForOnce() async throws {
        try await start()
        server.answer("/in", with: .status(503), .content([1]))
        var request = TransferRequest(token: "d", kind: .download, url: server.url("/in"))
        request.method = "POST"
        let id = try #require(try await daemon.client.createTasks([request], in: "s").first)
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 failed of \(id)"])
        #expect(events.first?.failure?.status == 503)
        #expect(server.requests(for: "/in").count == 1)
    }
}

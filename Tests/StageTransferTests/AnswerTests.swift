import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageTransfer

/// Responses as callers receive them, and further options of a request.
@Suite(.server) struct AnswerTests {
    let server = TestServer.current
    let folder: TemporaryDirectory
    let part: PartialFile
    static let content = noise(300_000)
    static let page = Array("there is no such thing".utf8)

    init() throws {
        folder = try TemporaryDirectory()
        part = try PartialFile.open("pack", in: folder.directory)
    }

    private func request(_ events: Events = Events()) -> DownloadRequest {
        DownloadRequest(server.url("/pack"), content: Self.content, events: events)
    }

    private func refusal(_ status: Int) -> Answer {
        Answer(content: Self.page).with { $0.status = status }
    }

    // MARK: the head

    @Test func theHeadIsReportedUnchanged() async throws {
        let events = Events()
        let url = "http://user:secret@127.0.0.1:\(server.port)/start"
        server.answer("/start", with: .redirect(to: "/next"))
        server.answer("/next", with: .redirect(to: "/pack", status: 307))
        server.answer("/pack", with: .content(Self.content).field("X-Odd-CASE", " a: b "))
        let request = DownloadRequest(url, content: Self.content, events: events)
        let receipt = try await download(request, to: part)
        #expect(receipt.status == 200)
        let answer = try #require(events.responses.first)
        #expect(events.responses.count == 1)
        #expect(answer.url == server.url("/pack"))
        #expect(answer.status == 200)
        #expect(answer.redirects == 2)
        #expect(answer.fields.contains(HeaderField(name: "X-Odd-CASE", value: "a: b")))
        #expect(answer.value(of: "content-LENGTH") == "300000")
        #expect(answer.value(of: "X-Missing") == nil)
        let order = events.all.map { event in
            switch event {
            case .connecting: "connecting"
            case .responded: "responded"
            case .accepted: "accepted"
            default: ""
            }
        }
        #expect(
            order.prefix(5) == ["connecting", "connecting", "connecting", "responded", "accepted"]
        )
    }

    @Test(arguments: [401, 407])
    func aChallengeIsReportedBeforeItIsAnError(status: Int) async throws {
        let events = Events()
        let challenge = "Basic realm=\"packs\""
        server.answer("/pack", with: .status(status).field("WWW-Authenticate", challenge))
        let error = await failure(of: request(events), to: part)
        #expect(error == .refused(url: server.url("/pack"), status: status))
        #expect(events.responses.map(\.status) == [status])
        #expect(events.responses.first?.value(of: "www-authenticate") == challenge)
    }

    /// The tunnel through a proxy has a separate head, which is not part of the server's response.
    @Test(arguments: [(407, true), (502, false)])
    func aProxyThatWantsANameIsARefusal(status: Int, isRefusal: Bool) async throws {
        var configuration = TransferConfiguration.single
        configuration.proxies = ProxySettings(https: server.baseURL)
        server.answer("example.invalid:443", with: .status(status))
        let url = "https://example.invalid/pack"
        let request = DownloadRequest(url, content: Self.content)
        let error = await failure(of: request, to: part, configuration)
        #expect((error == .refused(url: url, status: 407)) == isRefusal)
        #expect(server.requests.map(\.method) == ["CONNECT"])
    }

    @Test func everyAttemptReportsItsResponse() async throws {
        let events = Events()
        server.answer(
            "/pack",
            with: .status(503).field("Retry-After", "0"),
            .content(Self.content)
        )
        try await download(request(events), to: part)
        #expect(events.responses.map(\.status) == [503, 200])
    }

    /// The server adds four fields itself: date, type, length and entity tag.
    @Test(arguments: [(252, 1, true), (253, 1, false), (1, 60_000, true), (1, 66_000, false)])
    func aHeadHasItsLimits(count: Int, length: Int, isTaken: Bool) async throws {
        let value = String(repeating: "a", count: length)
        let answer = Answer.content(Self.content).with { answer in
            for index in 0..<count { answer.fields["X-\(index)"] = value }
        }
        server.answer("/pack", with: answer)
        let error = await failure(of: request(), to: part)
        let detail = "its head has more than 256 fields or 65536 bytes"
        let refusal = TransferError.unacceptable(url: server.url("/pack"), .answer(detail))
        #expect(error == (isTaken ? nil : refusal))
    }

    /// Field values that take seconds to compare, on the thread of all transfers.
    @Test(arguments: ["X-A", "ETag", "Content-Type"])
    func aHeadHasFewCombiningCharactersInARow(name: String) async throws {
        let value = "a" + String(repeating: "\u{301}", count: 31)
        server.answer("/pack", with: .content(Self.content).field(name, value))
        let error = await failure(of: request(), to: part)
        let detail = "its head has more than 30 combining characters in a row"
        #expect(error == .unacceptable(url: server.url("/pack"), .answer(detail)))
    }

    @Test func aFieldContinuesInALineThatBeginsWithABlank() {
        var head = ResponseHead(status: 200)
        for line in ["X-A: one\r\n", " two\r\n", "\tthree\r\n"] { head.read(line[...]) }
        #expect(head.fields == [HeaderField(name: "X-A", value: "one two three")])
    }

    // MARK: refusals as content

    @Test(arguments: [400, 401, 404, 410, 451, 501])
    func aRefusalIsContentWhereThatIsWanted(status: Int) async throws {
        let events = Events()
        server.answer("/pack", with: refusal(status))
        var request = request(events)
        request.acceptsErrorResponses = true
        let receipt = try await download(request, to: part)
        #expect(receipt.status == status)
        #expect(receipt.attempts == 1)
        #expect(fileContent(part.path) == Self.page)
        #expect(events.responses.map(\.status) == [status])
    }

    @Test(arguments: [408, 425, 429, 500, 502, 503, 504, 522])
    func aFailureThatPassesIsNoContent(status: Int) async throws {
        server.answer("/pack", with: refusal(status), .content(Self.content))
        var request = request()
        request.acceptsErrorResponses = true
        let receipt = try await download(request, to: part)
        #expect(receipt.attempts == 2)
        #expect(fileContent(part.path) == Self.content)
    }

    @Test func aPortalIsNoContent() async throws {
        server.answer("/pack", with: refusal(511))
        var request = request()
        request.acceptsErrorResponses = true
        let url = server.url("/pack")
        let error = await failure(of: request, to: part)
        #expect(error == .captivePortal(url: url, answeredBy: url))
    }

    @Test func anErrorPageReplacesThePartialFileAndIsNotResumed() async throws {
        server.answer("/pack", with: .content(Self.content).cut(after: 290_000))
        _ = await failure(of: request(), to: part, .single)
        var request = request()
        request.acceptsErrorResponses = true
        request.size = nil
        request.verify = { _ in nil }
        let tagged = refusal(404).tagged("\"page\"")
        server.answer("/pack", with: tagged.cut(after: 5))
        #expect(await failure(of: request, to: part, .single) != nil)
        server.answer("/pack", with: tagged)
        try await download(request, to: part)
        #expect(fileContent(part.path) == Self.page)
        // The refusal might have concerned only the range.
        #expect(server.requests.map { $0["range"] } == [nil, "bytes=290000-", nil, nil])
        server.answer("/pack", with: .content(Self.content))
        try await download(request, to: part)
        #expect(fileContent(part.path) == Self.content)
        #expect(server.requests.last?["range"] == nil)
    }

    // MARK: methods, time limits, fields

    @Test func anotherMethodIsReceivedFromItsFirstByteEachTime() async throws {
        var request = request()
        request.method = "POST"
        request.isIdempotent = true
        server.answer(
            "/pack",
            with: .content(Self.content).cut(after: 290_000),
            .content(Self.content).with { $0.status = 201 }
        )
        let receipt = try await download(request, to: part)
        #expect(receipt.status == 201)
        #expect(server.requests.map(\.method) == ["POST", "POST"])
        #expect(server.requests.map { $0["range"] } == [nil, nil])
        #expect(server.requests.map { $0["content-length"] } == ["0", "0"])
        let again = try await download(request, to: part)
        #expect(again.attempts == 1)
    }

    @Test(
        arguments: ["POST", "PATCH"],
        [Answer.status(503), .content(content).cut(after: 290_000)]
    )
    func aRequestThatIsNotIdempotentIsSentOnce(method: String, answer: Answer) async throws {
        var request = request()
        request.method = method
        request.mirrors.append(server.url("/other"))
        server.answer("/pack", with: answer, .content(Self.content))
        #expect(await failure(of: request, to: part, .impatient) != nil)
        #expect(server.requests.count == 1)
    }

    @Test func headBringsNothing() async throws {
        let events = Events()
        server.answer("/pack", with: .content(Self.content))
        var request = request(events)
        request.method = "HEAD"
        request.size = nil
        request.verify = { _ in nil }
        let receipt = try await download(request, to: part)
        #expect(receipt.status == 200)
        #expect(fileContent(part.path) == [])
        #expect(events.responses.first?.value(of: "content-length") == "300000")
    }

    @Test(arguments: [
        (303, "PUT", "GET"), (303, "HEAD", "HEAD"), (302, "POST", "GET"), (301, "POST", "GET"),
        (302, "PUT", "PUT"), (307, "POST", "POST"), (308, "PUT", "PUT"), (302, "GET", "GET"),
    ])
    func aRedirectMayChangeTheMethod(status: Int, method: String, target: String) {
        #expect(RedirectRules.method(after: status, of: method) == target)
    }

    @Test(arguments: ["", "get", "GE T", "GET\r\nX: y", "CONNECT"])
    func aMethodThatIsNoneIsRefused(method: String) async {
        var request = request()
        request.method = method
        let detail = "the method '\(method)' cannot be used for a download"
        let error = await failure(of: request, to: part)
        #expect(error == .unacceptable(url: server.url("/pack"), .request(detail)))
        #expect(server.requests.isEmpty)
    }

    @Test(arguments: ["A: b\r\nC: d", "A: b\n", "A: \u{0}", ": b", " A: b", "A b: c", ""])
    func aFieldThatIsNoneIsRefused(field: String) async {
        var request = request()
        request.fields = [field]
        guard case .unacceptable(_, .request) = await failure(of: request, to: part) else {
            Issue.record("expected a refusal")
            return
        }
        #expect(server.requests.isEmpty)
    }

    @Test func aRequestHasItsOwnPatience() async throws {
        server.answer(
            "/pack",
            with: .content(Self.content).stalled(after: 100_000),
            .content(Self.content)
        )
        var request = request()
        request.requestTimeout = .milliseconds(500)
        // On a busy machine, the server may be silent for as long in later attempts, too.
        var configuration = TransferConfiguration.impatient
        configuration.retry.maximumAttempts = 200
        let receipt = try await download(request, to: part, configuration)
        #expect(receipt.attempts >= 2)
        #expect(receipt.bytesReused == .zero)
    }

    /// The engine's rule would end the transfer, because it is slower than the rule permits.
    @Test func bytesThatComeSlowlyAreNoSilence() async throws {
        let content = noise(3000)
        server.answer("/pack", with: .content(content).slowed(to: 3000))
        var configuration = TransferConfiguration.single
        configuration.stall = StallRule(minimum: ByteCount(3000), window: .milliseconds(250))
        var request = DownloadRequest(server.url("/pack"), content: content)
        let error = await failure(of: request, to: part, configuration)
        let detail = "the transfer stalled for 0.25 seconds"
        #expect(error == .unreachable(url: server.url("/pack"), .timeout, detail: detail))
        request.requestTimeout = .seconds(120)
        try await download(request, to: part, configuration)
    }

    // MARK: checkpoints

    @Test func aCheckpointIsReported() async throws {
        let events = Events()
        server.answer(
            "/pack",
            with: .content(Self.content).cut(after: 290_000),
            .content(Self.content)
        )
        try await download(request(events), to: part)
        #expect(events.all.filter { $0 == .checkpointed(ByteCount(290_000)) }.count == 1)
        #expect(part.durable == 290_000)
    }

    @Test func aDownloadThatCannotBeResumedHasNoCheckpoints() async throws {
        let events = Events()
        server.answer(
            "/pack",
            with: .content(Self.content).chunked().cut(after: 290_000),
            .content(Self.content)
        )
        var request = request(events)
        request.size = nil
        try await download(request, to: part)
        let checkpoints = events.all.filter { if case .checkpointed = $0 { true } else { false } }
        #expect(checkpoints.isEmpty)
    }
}

extension Events {
    /// The responses that the transfer reported.
    var responses: [ResponseSummary] {
        all.compactMap {
            guard case .responded(let response) = $0 else { return nil }
            return response
        }
    }
}

import Dispatch
import Glibc
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@testable import StageTransfer

@Suite(.server) struct UploadTests: UploadSuite {
    let server = TestServer.current
    let folder: TemporaryDirectory
    static let large = 3 << 20 + 1

    init() throws { folder = try TemporaryDirectory() }

    private func request(_ events: Events = Events()) -> UploadRequest {
        UploadRequest(url: server.url("/in")) { events.append($0) }
    }

    /// The error of an upload that fails.
    private func failure(
        _ content: [UInt8],
        _ request: UploadRequest,
        _ configuration: TransferConfiguration = .impatient
    ) async -> TransferError? {
        do {
            _ = try await upload(content, request, configuration)
            return nil
        } catch {
            return error as? TransferError
        }
    }

    /// Compares the received bodies, without a message about each byte.
    private func expectBodies(
        _ contents: [[UInt8]],
        for path: String = "/in",
        at location: SourceLocation = #_sourceLocation
    ) {
        let isEqual = server.bodies(for: path) == contents
        #expect(isEqual, sourceLocation: location)
    }

    private func answer(_ status: Int, _ text: String = "") -> Answer {
        Answer(content: Array(text.utf8)).with { $0.status = status }
    }

    @Test(arguments: [0, 1, 1 << 16, large], [UploadRequest.Method.post, .put, .patch])
    func everyByteArrives(size: Int, method: UploadRequest.Method) async throws {
        let content = noise(size)
        let events = Events()
        server.answer("/in", with: answer(201, "thanks"))
        var request = request(events)
        request.method = method
        request.fields = ["X-Name: value"]
        let receipt = try await upload(content, request)
        expectBodies([content])
        #expect(receipt.response.status == 201)
        #expect(receipt.response.url == server.url("/in"))
        #expect(receipt.body == Array("thanks".utf8))
        #expect(receipt.isBodyComplete)
        #expect(receipt.bytesSent == ByteCount(size))
        #expect(receipt.attempts == 1)
        let head = try #require(server.requests.first)
        #expect(server.requests.count == 1)
        #expect(head.method == method.rawValue)
        #expect(head["content-length"] == "\(size)")
        #expect(head["content-type"] == nil)
        #expect(head["transfer-encoding"] == nil)
        #expect(head["x-name"] == "value")
        #expect(events.sent == Self.steps(to: size))
        #expect(events.responses == [receipt.response])
    }

    /// The progress reports of an upload of `size` bytes, at least a quarter of a mebibyte apart.
    private static func steps(to size: Int) -> [Int64] {
        size == 0 ? [] : Array(stride(from: 1 << 18, to: Int64(size), by: 1 << 18)) + [Int64(size)]
    }

    @Test func theTypeIsTheCallers() async throws {
        server.answer("/in", with: answer(200))
        var request = request()
        request.fields = ["Content-Type: application/json"]
        _ = try await upload([1], request)
        #expect(server.requests.first?["content-type"] == "application/json")
    }

    @Test(arguments: ["Content-Length: 7", "transfer-encoding: chunked", "Expect: x"])
    func theFrameOfTheBodyIsNotTheCallers(field: String) async {
        var request = request()
        request.fields = [field]
        guard case .unacceptable(_, .request) = await failure([1], request) else {
            Issue.record("expected a refusal")
            return
        }
        #expect(server.requests.isEmpty)
    }

    @Test(arguments: ["file:///etc/passwd", "ftp://h/p", "", "/in"])
    func otherURLsAreRefused(url: String) async {
        guard case .unacceptable = await failure([1], UploadRequest(url: url)) else {
            Issue.record("expected a refusal")
            return
        }
    }

    // MARK: redirects

    @Test(arguments: [307, 308], [1, 1 << 16, large])
    func aRedirectThatAsksForTheBodyGetsIt(status: Int, size: Int) async throws {
        let content = noise(size)
        let events = Events()
        let there = server.url("/there", host: "localhost")
        server.answer("/in", with: .redirect(to: there, status: status))
        server.answer("/there", with: answer(200))
        var request = request(events)
        request.method = .put
        request.fields = ["Cookie: secret"]
        let receipt = try await upload(content, request)
        expectBodies([content], for: "/there")
        #expect(server.requests.map(\.method) == ["PUT", "PUT"])
        #expect(server.requests.map { $0["cookie"] } == ["secret", nil])
        #expect(receipt.response.url == there)
        #expect(receipt.response.redirects == 1)
        #expect(receipt.attempts == 1)
        #expect(events.responses.map(\.status) == [200])
    }

    /// The server redirects before it has read the body.
    @Test func aRedirectMayComeEarly() async throws {
        let content = noise(Self.large)
        let early = Answer.redirect(to: "/there", status: 307).with { $0.comesEarly = true }
        server.answer("/in", with: early)
        server.answer("/there", with: answer(200))
        let receipt = try await upload(content, request())
        expectBodies([content], for: "/there")
        #expect(receipt.attempts == 1)
    }

    @Test(arguments: [301, 302, 303])
    func anyOtherRedirectIsTheAnswer(status: Int) async throws {
        server.answer("/in", with: .redirect(to: "/there", status: status))
        let receipt = try await upload([1, 2], request())
        #expect(receipt.response.status == status)
        #expect(receipt.response.value(of: "location") == "/there")
        #expect(server.requests.count == 1)
    }

    @Test func thereAreTenRedirectsAtMost() async throws {
        server.answer("/in", with: .redirect(to: "/in", status: 307))
        let error = await failure([1], request())
        #expect(error == .unacceptable(url: server.url("/in"), .redirects(limit: 10)))
        #expect(server.bodies(for: "/in").count == 11)
    }

    @Test func aBodyStaysInTheAllowedDomains() async throws {
        let there = server.url("/there", host: "localhost")
        server.answer("/in", with: .redirect(to: there, status: 308))
        var request = request()
        request.allowedDomains = AllowedDomains(["127.0.0.1"])
        let error = await failure([1], request)
        #expect(error == .unacceptable(url: there, .domain("localhost")))
        #expect(server.requests(for: "/there").isEmpty)
    }

    // MARK: refusals and failures

    @Test(arguments: [401, 403, 404, 413, 501], [1, large])
    func aRefusalIsAnAnswer(status: Int, size: Int) async throws {
        let events = Events()
        server.answer("/in", with: answer(status, "no").with { $0.comesEarly = size > 1 })
        let receipt = try await upload(noise(size), request(events))
        #expect(receipt.response.status == status)
        #expect(receipt.body == Array("no".utf8) || size > 1)
        #expect(server.requests.count == 1)
        #expect(events.responses.map(\.status) == [status])
    }

    @Test(
        arguments: [408, 425, 429, 500, 502, 503, 504, 522],
        [UploadRequest.Method.post, .put, .patch]
    )
    func anUploadWithAResponseIsNotSentAgain(
        status: Int,
        method: UploadRequest.Method
    ) async throws {
        server.answer("/in", with: answer(status, "no").field("Retry-After", "0"), answer(201))
        var request = request()
        request.method = method
        let receipt = try await upload([1], request)
        #expect(receipt.response.status == status)
        #expect(receipt.body == Array("no".utf8))
        #expect(receipt.attempts == 1)
        expectBodies([[1]])
    }

    @Test(arguments: [408, 425, 429, 500, 502, 503, 504, 522])
    func anAnswerThatPassesIsTriedAgainWhereTheClientSaysSo(status: Int) async throws {
        let content = noise(1 << 16)
        let passing = answer(status).field("Retry-After", "0")
        server.answer("/in", with: passing, answer(201))
        var request = request()
        request.isIdempotent = true
        let receipt = try await upload(content, request)
        #expect(receipt.attempts == 2)
        #expect(receipt.bytesSent == ByteCount(2 << 16))
        expectBodies([content, content])
    }

    /// Methods whose response is lost, each with `true` if the body may be sent again.
    @Test(
        arguments: [(UploadRequest.Method.post, false), (.patch, false), (.put, true)],
        [0, 1, large]
    )
    func aLostAnswerIsNoReasonToActTwice(
        _ row: (method: UploadRequest.Method, isRepeated: Bool),
        size: Int
    ) async throws {
        let content = noise(size)
        let lost = answer(200).with { $0.dropsBodyAfter = size }
        server.answer("/in", with: lost, answer(201))
        var request = request()
        request.method = row.method
        if row.isRepeated {
            #expect(try await upload(content, request).response.status == 201)
            #expect(server.requests.count == 2)
        } else {
            let error = await failure(content, request)
            guard case .unreachable(_, _, let detail) = error else {
                Issue.record("expected no answer, found \(String(describing: error))")
                return
            }
            #expect(detail.contains("the server may have acted on the request"))
            #expect(server.requests.count == 1)
        }
    }

    /// libcurl itself repeats a request if a reused connection ends.
    @Test(arguments: [UploadRequest.Method.post, .patch], [0, 1, large])
    func aConnectionThatWasUsedIsNoReasonToActTwice(
        method: UploadRequest.Method,
        size: Int
    ) async throws {
        server.answer("/first", with: answer(201))
        let lost = answer(200).with { $0.dropsBodyAfter = size }
        server.answer("/in", with: lost, answer(201))
        try folder.directory.write(noise(size), to: "body", durably: false)
        let path = folder.directory.path.appending("body")
        var first = UploadRequest(url: server.url("/first"))
        first.method = .put
        var second = request()
        second.method = method
        await #expect(throws: TransferError.self) {
            try await withEngine(.single) { [first, second] engine in
                _ = try await engine.upload(first, from: try File.open(reading: path))
                _ = try await engine.upload(second, from: try File.open(reading: path))
            }
        }
        #expect(server.requests(for: "/in").count == 1)
    }

    @Test(arguments: [0, 1, 1 << 16, large])
    func theLastBytesWaitForWillComplete(size: Int) async throws {
        let content = noise(size)
        server.answer("/in", with: answer(201))
        let received = Mutex<Int?>(nil)
        var request = request()
        request.willComplete = { [server] in
            // The delay is long enough for everything that does not wait.
            try? await Task.sleep(for: .milliseconds(200))
            received.withLock { $0 = server.bodies(for: "/in").count }
        }
        #expect(try await upload(content, request).response.status == 201)
        #expect(received.withLock { $0 } == 0)
        expectBodies([content])
    }

    @Test(arguments: [0, 1, 1 << 16, large])
    func anErrorOfWillCompleteEndsTheUpload(size: Int) async throws {
        server.answer("/in", with: answer(201))
        var request = request()
        let path = folder.directory.path
        request.willComplete = { () async throws(TransferError) in throw .outOfSpace(path) }
        let error = await failure(noise(size), request)
        #expect(error == .outOfSpace(path))
        #expect(server.bodies(for: "/in").isEmpty)
        // A PUT may be repeated, so `willComplete` is not called.
        request.method = .put
        #expect(try await upload(noise(size), request).response.status == 201)
    }

    @Test(arguments: [0, 1, 1 << 20])
    func aConnectionThatDiesIsTriedAgain(count: Int) async throws {
        // The content exceeds the buffers of both peers.
        let content = noise(32 << 20)
        server.answer("/in", with: answer(200).with { $0.dropsBodyAfter = count }, answer(201))
        let receipt = try await upload(content, request())
        #expect(receipt.response.status == 201)
        #expect(receipt.attempts == 2)
        expectBodies([content])
    }

    @Test func aServerThatIsNotThereEndsTheUploadInTheEnd() async throws {
        let error = await failure([1], UploadRequest(url: "http://127.0.0.1:1/in"))
        guard case .unreachable("http://127.0.0.1:1/in", .connect, _) = error else {
            Issue.record("expected no answer, found \(String(describing: error))")
            return
        }
    }

    @Test func aServerThatIsSilentIsNotWaitedForForever() async throws {
        let gate = Gate()
        defer { gate.open() }
        server.answer("/in", with: answer(200).waiting(for: gate))
        var request = request()
        request.requestTimeout = .milliseconds(250)
        request.method = .put
        let error = await failure([1], request, .single)
        let detail = "the transfer stalled for 0.25 seconds"
        #expect(error == .unreachable(url: server.url("/in"), .timeout, detail: detail))
    }

    @Test(arguments: [0, 1, large]) func aServerThatIsSilentIsNotAskedTwice(size: Int) async throws
    {
        let gate = Gate()
        defer { gate.open() }
        server.answer("/in", with: answer(200).waiting(for: gate))
        var request = request()
        request.requestTimeout = .milliseconds(250)
        // If the server begins to read late, the client repeats a request of which it has not sent everything.
        var configuration = TransferConfiguration.impatient
        configuration.retry.maximumAttempts = 200
        let error = await failure(noise(size), request, configuration)
        guard case .unreachable(_, _, let detail) = error else {
            Issue.record("expected no answer, found \(String(describing: error))")
            return
        }
        #expect(detail.contains("the server may have acted on the request"))
        #expect(server.bodies(for: "/in").count <= 1)
    }

    // MARK: the response 100 (Continue)

    @Test(arguments: [true, false])
    func aServerMaySend100ContinueOrNothing(isGiven: Bool) async throws {
        let content = noise(Self.large)
        server.answer("/in", with: answer(200).with { $0.continues = isGiven })
        var request = request()
        request.method = .put
        _ = try await upload(content, request)
        #expect(server.requests.first?["expect"] == "100-continue")
        expectBodies([content])
    }

    @Test func a417IsFollowedByARequestWithoutExpect() async throws {
        let content = noise(Self.large)
        let events = Events()
        server.answer("/in", with: answer(417).with { $0.comesEarly = true }, answer(200))
        var request = request(events)
        request.method = .put
        let receipt = try await upload(content, request)
        #expect(receipt.response.status == 200)
        #expect(receipt.attempts == 1)
        #expect(server.requests.map { $0["expect"] } == ["100-continue", nil])
        expectBodies([content])
    }

    // MARK: the file

    @Test func aFileThatBecomesShorterIsAnError() async throws {
        let folder = folder
        server.answer("/in", with: answer(200))
        var request = request()
        request.report = { event in
            guard case .sent = event else { return }
            try? folder.directory.file(updating: "body").truncate(to: 1 << 18)
        }
        let error = await failure(noise(Self.large), request)
        let expected = TransferError.wrongSize(
            url: folder.directory.path.appending("body").string,
            expected: ByteCount(Self.large),
            actual: ByteCount(1 << 18)
        )
        #expect(error == expected)
        #expect(server.bodies(for: "/in").isEmpty)
    }

    @Test func bytesAddedToTheFileDuringAnUploadAreNotSent() async throws {
        let content = noise(Self.large)
        let folder = folder
        server.answer("/in", with: answer(200))
        var request = request()
        request.report = { event in
            guard case .sent = event else { return }
            try? folder.directory.file(updating: "body").truncate(to: 4 << 20)
        }
        _ = try await upload(content, request)
        expectBodies([content])
    }

    @Test func aDirectoryIsNotSent() async throws {
        let path = folder.directory.path
        let request = request()
        await #expect(throws: TransferError.self) {
            try await withEngine { engine in
                try await engine.upload(request, from: try File.open(reading: path))
            }
        }
        #expect(server.requests.isEmpty)
    }

    // MARK: the answer's body

    @Test(arguments: [1 << 20 - 1, 1 << 20, 1 << 20 + 1, 2 << 20])
    func theFirstMebibyteOfTheAnswerIsKept(size: Int) async throws {
        let content = noise(size)
        server.answer("/in", with: Answer(content: content).with { $0.status = 200 })
        let receipt = try await upload([1], request())
        let isPrefix = receipt.body == Array(content.prefix(1 << 20))
        #expect(isPrefix)
        #expect(receipt.isBodyComplete == (size <= 1 << 20))
        #expect(receipt.attempts == 1)
    }

    @Test func aSuccessIsNoneTheLessWhenItsBodyIsCutShort() async throws {
        server.answer("/in", with: answer(200, "thanks").cut(after: 3))
        let receipt = try await upload([1], request())
        #expect(receipt.body == Array("tha".utf8))
        #expect(!receipt.isBodyComplete)
        #expect(server.requests.count == 1)
    }

    /// A server may respond before it receives the body, if it already has the content (RFC 9110, section 10.1.1).
    @Test func aSuccessMayComeBeforeTheBody() async throws {
        server.answer("/in", with: answer(200).with { $0.comesEarly = true })
        let receipt = try await upload(noise(Self.large), request())
        #expect(receipt.response.status == 200)
        #expect(receipt.attempts == 1)
    }

    @Test func aSuccessThatIsCutShortBeforeTheBodyIsSentIsNone() async throws {
        let content = noise(16 << 20)
        let hasty = answer(200, "thanks").cut(after: 3).with { $0.comesEarly = true }
        server.answer("/in", with: hasty, answer(201))
        var request = request()
        request.method = .put
        let receipt = try await upload(content, request)
        #expect(receipt.response.status == 201)
        #expect(receipt.attempts == 2)
        expectBodies([content])
    }

    // MARK: cancelling

    @Test(.timeLimit(.minutes(5))) func cancellingEndsTheUploadAtOnce() async throws {
        let content = noise(1 << 16)
        try folder.directory.write(content, to: "body", durably: false)
        let path = folder.directory.path.appending("body")
        // The server responds once the upload has ended.
        let end = DispatchSemaphore(value: 0)
        defer { end.signal() }
        server.answer("/in", with: answer(200).waiting { end.wait() })
        var request = request()
        let (sent, isSent) = AsyncStream.makeStream(of: Void.self)
        request.report = { if $0 == .sent(ByteCount(1 << 16)) { isSent.finish() } }
        let ready = request
        let error = try await withEngine { engine in
            await withTaskGroup(of: TransferError?.self) { group in
                group.addTask {
                    guard let file = try? File.open(reading: path) else { return nil }
                    do throws(TransferError) {
                        _ = try await engine.upload(ready, from: file)
                        return nil
                    } catch {
                        return error
                    }
                }
                for await _ in sent {}
                group.cancelAll()
                return await group.next() ?? nil
            }
        }
        #expect(error == .cancelled)
    }

    @Test func uploadsAndDownloadsShareTheConnections() async throws {
        let content = noise(4096)
        try folder.directory.write(content, to: "body", durably: false)
        let path = folder.directory.path.appending("body")
        server.answer("/in", with: answer(200))
        server.answer("/pack", with: .content(content))
        var configuration = TransferConfiguration.impatient
        configuration.connectionsPerHost = 2
        let events = Events()
        var request = request(events)
        // A POST uses a new connection.
        request.method = .put
        try await withEngine(configuration) { [request] engine in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for index in 0..<20 {
                    let name = try #require(FilePath.Component("part\(index)"))
                    let part = try PartialFile.open(name, in: folder.directory)
                    let download = DownloadRequest(server.url("/pack"), content: content)
                    group.addTask { _ = try await engine.download(download, to: part) }
                    group.addTask {
                        _ = try await engine.upload(request, from: try File.open(reading: path))
                    }
                }
                try await group.waitForAll()
            }
        }
        #expect(server.peakConcurrency <= 2)
        #expect(server.connectionCount <= 2)
        #expect(events.all.contains(.waiting(.connection, nil)))
        #expect(server.bodies(for: "/in") == Array(repeating: content, count: 20))
    }
}

extension Events {
    /// The reported numbers of sent bytes, in order.
    var sent: [Int64] {
        all.compactMap {
            guard case .sent(let count) = $0 else { return nil }
            return count.rawValue
        }
    }
}

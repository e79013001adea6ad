import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@testable import StageTransfer

/// Uploads in presigned parts, through sockets.
@Suite struct MultipartUploadTests: UploadSuite {
    private let server: PartServer
    let folder: TemporaryDirectory
    private static let size = 4 << 20 + 1
    private static let part = 1 << 20

    init() throws {
        server = try PartServer()
        folder = try TemporaryDirectory()
    }

    private func request(
        events: Events = Events(),
        _ change: (inout UploadParts) -> Void = { _ in }
    ) -> UploadRequest {
        var request = UploadRequest(url: server.url("/object")) { events.append($0) }
        var parts = server.targets(for: Self.size, part: Self.part)
        change(&parts)
        request.parts = parts
        return request
    }

    private func failure(_ request: UploadRequest) async -> TransferError? {
        let content = noise(Self.size)
        return await #expect(throws: TransferError.self) { try await upload(content, request) }
    }

    private func expectObject(_ content: [UInt8], at location: SourceLocation = #_sourceLocation) {
        let isEqual = server.object == content
        #expect(isEqual, sourceLocation: location)
        #expect(server.faults == [], sourceLocation: location)
    }

    @Test func thePartsArriveInOrderAndAreCompleted() async throws {
        let content = noise(Self.size)
        let events = Events()
        let receipt = try await upload(content, request(events: events))
        expectObject(content)
        #expect(server.order == [1, 2, 3, 4, 5])
        #expect(server.requests.compactMap { $0["content-length"] }.prefix(5).last == "1")
        #expect(server.methods == ["PUT", "PUT", "PUT", "PUT", "PUT", "POST"])
        #expect(receipt.response.status == 200 && receipt.response.url == server.url("/object"))
        #expect(receipt.bytesSent == ByteCount(Self.size))
        #expect(receipt.attempts == 1)
        #expect(events.responses.map(\.status) == [200])
        #expect(events.sent.last == Int64(Self.size))
        let isConnecting = events.all.filter { if case .connecting = $0 { true } else { false } }
        #expect(isConnecting.count == 1)
    }

    @Test(arguments: [1, 2, 3] as [UInt64])
    func aPartThatIsCutIsSentAgain(seed: UInt64) async throws {
        var numbers = SeededGenerator(seed: seed)
        let content = noise(Self.size)
        let cuts = (1...6).map { _ in Int.random(in: 0..<(1 << 15), using: &numbers) }
        server.cut(after: cuts)
        var configuration = TransferConfiguration.impatient
        configuration.retry.maximumAttempts = 20
        var request = request()
        request.parts = server.targets(for: Self.size, part: 1 << 15)
        let receipt = try await upload(content, request, configuration)
        expectObject(content)
        #expect(server.order == Array(1...129))
        #expect(Double(server.received) <= 1.05 * Double(Self.size))
        #expect(receipt.attempts == 7)
    }

    @Test func anotherProcessContinuesWithTheFirstPartThatIsNotAcknowledged() async throws {
        let content = noise(Self.size)
        let kept = Mutex<[UploadResource?]>([])
        var request = request()
        request.keepResource = { resource in kept.withLock { $0.append(resource) } }
        let isBroken = Mutex(true)
        server.replace { head in
            head.target.contains("number=3") && isBroken.withLock { $0 } ? "" : nil
        }
        await #expect(throws: TransferError.self) { try await upload(content, request, .single) }
        let resource = try #require(kept.withLock { $0.last ?? nil })
        #expect(resource.entityTags?.count == 2)
        #expect(resource.offset == ByteCount(2 << 20) && !resource.mayBeComplete)
        request.resource = resource
        isBroken.withLock { $0 = false }
        _ = try await upload(content, request)
        expectObject(content)
        #expect(server.order == [1, 2, 3, 4, 5])
        #expect(kept.withLock { $0.last??.mayBeComplete } == true)
    }

    /// The stored state of another file, or a damaged one, is ignored.
    @Test(arguments: [0, 1, 2, 3]) func theStoredStateOfOtherPartsIsIgnored(fault: Int) async throws
    {
        var resource = UploadResource(url: "", uploadProtocol: .presignedParts)
        resource.size = ByteCount(Self.size - (fault == 0 ? 1 : 0))
        resource.entityTags = fault == 1 ? ["a\n"] : ["\"a\""]
        resource.offset = ByteCount(Self.part - (fault == 2 ? 1 : 0))
        if fault == 3 { resource = UploadResource(url: "", uploadProtocol: .plain) }
        var request = request()
        request.resource = resource
        let content = noise(Self.size)
        _ = try await upload(content, request)
        expectObject(content)
    }

    @Test func anAnswerThatMayPassIsFollowedByAnotherAttempt() async throws {
        server.replace { [server] head in
            let count = server.requests.count { $0.target == head.target }
            return count == 1
                ? "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" : nil
        }
        let content = noise(Self.size)
        let receipt = try await upload(content, request())
        expectObject(content)
        #expect(receipt.attempts == 7)
    }

    @Test func aRefusalIsTheAnswer() async throws {
        server.replace {
            $0.target.contains("number=2")
                ? "HTTP/1.1 403 Expired\r\nContent-Length: 2\r\n\r\nno" : nil
        }
        let receipt = try await upload(noise(Self.size), request())
        #expect(receipt.response.status == 403 && receipt.body == Array("no".utf8))
        #expect(server.methods == ["PUT", "PUT"])
    }

    @Test(arguments: ["", "ETag: \"\(String(repeating: "x", count: 300))\"\r\n"])
    func aPartWithoutAUsableTagEndsTheUpload(field: String) async {
        server.replace { _ in "HTTP/1.1 200 OK\r\n\(field)Content-Length: 0\r\n\r\n" }
        guard case .unacceptable(_, .answer(let detail)) = await failure(request()) else {
            Issue.record("expected a refusal")
            return
        }
        #expect(detail.contains("part 1"))
    }

    // MARK: completion

    /// The head of a success is sent before the object is created.
    @Test func anErrorInTheBodyOfASuccessIsOne() async throws {
        func answer(_ code: String) -> String {
            let body = PartServer.error(code)
            return "HTTP/1.1 200 OK\r\nContent-Length: \(body.utf8.count)\r\n\r\n" + body
        }
        let (passing, lasting) = (answer("InternalError"), answer("InvalidPart"))
        server.replace { [server] head in
            guard head.method == "POST" else { return nil }
            return server.methods.count { $0 == "POST" } == 1 ? passing : lasting
        }
        guard case .unacceptable(_, .answer(let detail)) = await failure(request()) else {
            Issue.record("expected a refusal")
            return
        }
        #expect(detail.contains("InvalidPart"))
        #expect(server.methods.filter { $0 == "POST" }.count == 2)
        #expect(server.order == [1, 2, 3, 4, 5])
    }

    @Test(arguments: [
        ("", CompletionAnswer.confirmed), ("<Errors/>", .confirmed),
        (" <?xml?> <Error/>", .error(code: "unknown")),
        ("<Error>\n<Code>SlowDown</Code>", .error(code: "SlowDown")),
        ("<Result><Error>", .confirmed),
        ("<Error><Code>a<b</Code>", .error(code: "a")), ("<?xml", .confirmed),
        ("<Error", .confirmed),
    ])
    func theBodyOfACompletionIsRead(text: String, answer: CompletionAnswer) {
        #expect(CompletionAnswer(Array(text.utf8), isComplete: true) == answer)
        #expect(CompletionAnswer(Array(text.utf8), isComplete: false) == .incomplete)
    }

    /// A server that no longer has the parts may have created the object from them.
    @Test func aLostCompletionMayHaveCompletedTheUpload() async {
        server.loseCompletions(1)
        guard case .unreachable(_, _, let detail) = await failure(request()) else {
            Issue.record("expected no answer")
            return
        }
        #expect(detail.contains("may have completed"))
        #expect(server.methods.suffix(2) == ["POST", "POST"])
    }

    @Test func partsThatAreGoneAreTheAnswer() async throws {
        server.replace {
            $0.method == "POST" ? "HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n" : nil
        }
        let receipt = try await upload(noise(Self.size), request())
        #expect(receipt.response.status == 404)
    }

    // MARK: rules

    @Test func thePartsAreTheFile() async {
        for change in [-1, 1] as [Int64] {
            let wrong = request { $0.parts[0].size = ByteCount(Int64(Self.part) + change) }
            guard case .unacceptable(_, .request) = await failure(wrong) else {
                Issue.record("expected a refusal")
                continue
            }
        }
        var empty = request()
        empty.parts?.parts = []
        guard case .unacceptable = await failure(empty) else {
            Issue.record("expected a refusal")
            return
        }
        #expect(server.methods == [])
    }

    @Test func noPartGoesOutsideOfTheDomains() async {
        var request = request { $0.parts[4].url = server.url("/part", host: "localhost") }
        request.allowedDomains = AllowedDomains(["127.0.0.1"])
        guard case .unacceptable = await failure(request) else {
            Issue.record("expected a refusal")
            return
        }
        #expect(server.methods == [])
    }

    @Test func headerFieldsAreForTheOrigin() async throws {
        var request = request()
        request.fields = ["Authorization: x", "Content-Type: a/b"]
        request.parts?.parts[0].url = server.url(
            "/part?number=1&signature=secret",
            host: "localhost"
        )
        let content = noise(Self.size)
        _ = try await upload(content, request)
        expectObject(content)
        #expect(server.requests.map { $0["authorization"] } == [nil, "x", "x", "x", "x", "x"])
        #expect(server.requests.prefix(5).allSatisfy { $0["content-type"] == nil })
    }

    /// A presigned URL grants access.
    @Test func theURLsAreNotReported() async {
        server.replace { _ in "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n" }
        let events = Events()
        let error = await failure(request(events: events))
        #expect(!"\(String(describing: error)) \(events.all)".contains("secret"))
        #expect(error != nil && !events.all.isEmpty)
    }

    @Test func theAbortGoesToTheOriginOnly() async throws {
        let own = request()
        let foreign = request {
            $0.abortURL = server.url("/abort?signature=secret", host: "localhost")
        }
        let none = request { $0.abortURL = nil }
        try await withEngine(.impatient) { engine in
            #expect(await engine.abortParts(of: foreign, timeout: .seconds(60)) == nil)
            #expect(await engine.abortParts(of: none, timeout: .seconds(60)) == nil)
            #expect(server.methods == [])
            #expect(await engine.abortParts(of: own, timeout: .seconds(60)) == 204)
        }
        #expect(server.isAborted)
    }
}

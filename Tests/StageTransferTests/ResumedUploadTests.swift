import Glibc
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@testable import StageTransfer

/// Uploads that resume, through sockets.
@Suite struct ResumedUploadTests: UploadSuite {
    private let server: UploadServer
    let folder: TemporaryDirectory
    private static let size = 8 << 20 + 1

    init() throws {
        server = try UploadServer()
        folder = try TemporaryDirectory()
    }

    /// The resources that an upload stored, in order.
    private final class Kept: Sendable {
        private let list = Mutex<[UploadResource?]>([])
        var all: [UploadResource?] { list.withLock { $0 } }
        func append(_ resource: UploadResource?) { list.withLock { $0.append(resource) } }
    }

    private func request(
        _ uploadProtocol: UploadProtocol,
        _ path: String = "/in",
        events: Events = Events()
    ) -> UploadRequest {
        var request = UploadRequest(url: server.url(path)) { events.append($0) }
        request.uploadProtocol = uploadProtocol
        return request
    }

    private func failure(_ content: [UInt8], _ request: UploadRequest) async -> TransferError? {
        let error = await #expect(throws: TransferError.self) { try await upload(content, request) }
        return error
    }

    private func expectFinished(
        _ contents: [[UInt8]],
        at location: SourceLocation = #_sourceLocation
    ) {
        let isEqual = server.finished == contents
        #expect(isEqual, sourceLocation: location)
    }

    @Test(arguments: [UploadProtocol.resumable, .tus], [1, 1 << 16, size])
    func aBodyIsSentOnce(_ uploadProtocol: UploadProtocol, size: Int) async throws {
        let content = noise(size)
        let receipt = try await upload(content, request(uploadProtocol))
        #expect(receipt.response.status == (uploadProtocol == .tus ? 204 : 201))
        expectFinished([content])
        let parts = Array(repeating: "PATCH", count: (size - 1) >> 20 + 1)
        #expect(server.methods == (uploadProtocol == .tus ? ["POST"] + parts : ["POST"]))
        #expect(receipt.bytesSent == ByteCount(size))
    }

    @Test(arguments: [UploadProtocol.resumable, .tus], [UploadRequest.Method.post, .put])
    func aBodyThatIsCutContinues(
        _ uploadProtocol: UploadProtocol,
        _ method: UploadRequest.Method
    ) async throws {
        let content = noise(Self.size)
        let events = Events()
        var request = request(uploadProtocol, events: events)
        request.method = method
        server.cut(after: 300_000, 100, 0, 500_000, 1)
        let receipt = try await upload(content, request)
        expectFinished([content])
        #expect(server.received == content.count)
        #expect(receipt.response.status == (uploadProtocol == .tus ? 204 : 201))
        // The number of attempts is one more than that of cuts: responses to requests for the offset are not reported.
        #expect(receipt.attempts == 6)
        #expect(events.responses.map(\.status) == [receipt.response.status])
        let offsets = server.requests.compactMap { $0["upload-offset"].flatMap { Int($0) } }
        let expected = [300_000, 300_100, 300_100, 800_100, 800_101]
        #expect(offsets.starts(with: (uploadProtocol == .tus ? [0] : []) + expected))
        #expect(events.sent.last == Int64(Self.size))
    }

    @Test func requestsHaveTheFieldsOfTheProtocol() async throws {
        var draft = request(.resumable)
        draft.fields = ["Content-Type: text/plain", "Authorization: x", "If-Match: *", "X-A: b"]
        server.cut(after: 10)
        _ = try await upload(noise(1 << 20), draft)
        try #require(server.requests.count == 3)
        let (first, question, rest) = (server.requests[0], server.requests[1], server.requests[2])
        #expect(first["upload-complete"] == "?1" && first["content-type"] == "text/plain")
        #expect(first["upload-draft-interop-version"] == "6" && first["if-match"] == "*")
        #expect(question.method == "HEAD" && question["upload-draft-interop-version"] == "6")
        for name in ["upload-complete", "upload-offset", "upload-length", "content-type"] {
            #expect(question[name] == nil)
        }
        #expect(rest.method == "PATCH" && rest["upload-draft-interop-version"] == "6")
        #expect(rest["upload-complete"] == "?1" && rest["upload-offset"] == "10")
        #expect(rest["content-length"] == "\(1 << 20 - 10)" && rest["if-match"] == nil)
        for head in [first, question, rest] {
            #expect(head["authorization"] == "x" && head["x-a"] == "b")
        }
        #expect(rest["content-type"] == "application/partial-upload")
    }

    @Test func aServerThatKnowsNoResumingIsSentTheSameRequest() async throws {
        let plain = try UploadServer(speaksDraft: false)
        var request = request(.resumable)
        request.url = plain.url("/in")
        let receipt = try await upload(noise(1 << 20), request)
        #expect(receipt.response.status == 201)
        #expect(plain.methods == ["POST"])
        // No other request is sent after a body that was cut.
        plain.cut(after: 10)
        let again = try await upload(noise(32 << 20), request)
        #expect(again.response.status == 201)
        #expect(plain.methods == ["POST", "POST", "POST"])
        #expect(plain.requests.allSatisfy { $0["upload-complete"] == "?1" })
    }

    /// A server that waits for more of the body may send a success, which is not the application's response.
    @Test func onlyTheLastAnswerIsReported() async throws {
        let url = server.url("/uploads/1")
        server.replace { head in
            switch head.method {
            case "POST":
                "HTTP/1.1 200 OK\r\nUpload-Complete: ?0\r\nLocation: \(url)\r\n"
                    + "Content-Length: 0\r\n\r\n"
            case "HEAD": "HTTP/1.1 204 No\r\nUpload-Offset: 0\r\nUpload-Complete: ?0\r\n\r\n"
            default: "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
            }
        }
        let events = Events()
        let receipt = try await upload([1, 2], request(.resumable, events: events))
        #expect(server.methods == ["POST", "HEAD", "PATCH"])
        #expect(receipt.response.status == 201)
        #expect(events.responses.map(\.status) == [201])
    }

    /// After an interim response with a resource, the final response is still unknown.
    @Test func aSuccessThatLacksTheBodyIsNotReported() async throws {
        server.replace { head in
            switch head.method {
            case "POST":
                "HTTP/1.1 104 Upload\r\nLocation: /uploads/1\r\n\r\n"
                    + "HTTP/1.1 200 OK\r\nUpload-Complete: ?0\r\nContent-Length: 0\r\n\r\n"
            case "HEAD": "HTTP/1.1 204 No\r\nUpload-Offset: 0\r\n\r\n"
            default: "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"
            }
        }
        let events = Events()
        let receipt = try await upload([1, 2], request(.resumable, events: events))
        #expect(server.methods == ["POST", "HEAD", "PATCH"])
        #expect(receipt.response.status == 403)
        #expect(events.responses.map(\.status) == [403])
    }

    @Test(arguments: [UploadProtocol.resumable, .tus])
    func aLostAnswerIsAskedFor(_ uploadProtocol: UploadProtocol) async throws {
        let content = noise(1 << 20)
        server.loseAnswers(1)
        let receipt = try await upload(content, request(uploadProtocol))
        #expect(receipt.response.status == (uploadProtocol == .tus ? 200 : 204))
        expectFinished([content])
        #expect(server.received == content.count)
    }

    @Test func theServerMayHaveActedOnAnUploadThatItForgot() async throws {
        server.loseAnswers(1)
        server.replace { $0.method == "HEAD" ? "HTTP/1.1 404 Gone\r\n\r\n" : nil }
        guard case .unreachable(_, _, let detail) = await failure([1, 2], request(.resumable))
        else {
            Issue.record("expected no answer")
            return
        }
        #expect(detail.contains("may have acted on"))
        #expect(server.methods == ["POST", "HEAD"])
    }

    @Test func anUploadThatIsGoneRestarts() async throws {
        let content = noise(32 << 20)
        server.cut(after: 1 << 20)
        server.replace { [server] head in
            if head.method == "HEAD" { server.forget() }
            return nil
        }
        let kept = Kept()
        var request = request(.resumable)
        request.keepResource = { kept.append($0) }
        _ = try await upload(content, request)
        expectFinished([content])
        #expect(server.methods == ["POST", "HEAD", "POST"])
        #expect(kept.all.map { $0?.mayBeComplete } == [false, nil, false, true])
    }

    @Test(arguments: [UploadProtocol.resumable, .tus])
    func theBodyWaitsUntilTheResourceIsKept(_ uploadProtocol: UploadProtocol) async throws {
        let content = noise(64 << 20)
        let kept = Kept()
        var request = request(uploadProtocol)
        let received = Atomic<Int>(-1)
        request.keepResource = { [server] resource in
            kept.append(resource)
            // Polls until everything has arrived that the kernel had to send: the whole body, if that did not wait.
            let count = try? await pollUntilUnchanged { server.received }
            if kept.all.count == 1 { received.store(count ?? .max, ordering: .relaxed) }
        }
        _ = try await upload(content, request)
        #expect(received.load(ordering: .relaxed) < content.count / 2)
        expectFinished([content])
        #expect(kept.all.map { $0?.mayBeComplete } == [false, true])
    }

    @Test(arguments: [UploadProtocol.resumable, .tus])
    func theStateOfAResourceIsStored(_ uploadProtocol: UploadProtocol) async throws {
        let content = noise(32 << 20)
        let kept = Kept()
        var request = request(uploadProtocol)
        request.keepResource = { kept.append($0) }
        request.willComplete = { Issue.record("the resource says more") }
        let cut = uploadProtocol == .tus ? 1000 : 3 << 20
        server.cut(after: cut)
        _ = try await upload(content, request)
        expectFinished([content])
        let offsets = kept.all.map { $0?.offset.rawValue }
        #expect(offsets == [0, Int64(cut), Int64(cut)])
        #expect(kept.all.map { $0?.mayBeComplete } == [false, false, true])
    }

    @Test func anUploadWithoutSpaceForItsResourceEnds() async throws {
        var request = request(.resumable)
        let path = folder.directory.path
        request.keepResource = { _ async throws(TransferError) in throw .outOfSpace(path) }
        #expect(await failure(noise(Self.size), request) == .outOfSpace(path))
        expectFinished([])
    }

    @Test func anotherProcessResumes() async throws {
        let content = noise(Self.size)
        let kept = Kept()
        var request = request(.resumable)
        request.keepResource = { kept.append($0) }
        server.cut(after: 5 << 20)
        await #expect(throws: TransferError.self) { try await upload(content, request, .single) }
        request.resource = kept.all.last ?? nil
        let receipt = try await upload(content, request)
        #expect(receipt.response.status == 201)
        #expect(server.received == content.count)
        expectFinished([content])
    }

    /// The resource of a gateway is not valid for the server to which the request is redirected.
    @Test func aRedirectAfterTheWholeBodyLeavesNoResource() async throws {
        let other = try UploadServer(speaksDraft: false)
        let target = other.url("/in")
        other.loseAnswers(1)
        server.replace { head in
            head.method == "POST"
                ? "HTTP/1.1 104 Upload\r\nLocation: /uploads/1\r\n\r\n"
                    + "HTTP/1.1 307 There\r\nLocation: \(target)\r\nContent-Length: 0\r\n\r\n"
                : "HTTP/1.1 204 No\r\nUpload-Offset: 0\r\n\r\n"
        }
        let kept = Kept()
        var request = request(.resumable)
        let calls = Atomic<Int>(0)
        request.keepResource = { kept.append($0) }
        request.willComplete = {
            // The gateway may have received the whole body before it named its resource.
            if kept.all.last == .some(nil) { _ = calls.add(1, ordering: .relaxed) }
        }
        let error = await failure([1, 2], request)
        guard case .unreachable = error else {
            Issue.record("expected no answer, found \(String(describing: error))")
            return
        }
        #expect(server.methods == ["POST"] && other.methods == ["POST"])
        #expect(kept.all.last == .some(nil))
        #expect(calls.load(ordering: .relaxed) == 1)
    }

    /// A new upload sends its last bytes after its own call of `willComplete`.
    @Test(.timeLimit(.minutes(5)))
    func permissionIsRequestedAgainAfterA404() async throws {
        let kept = Kept()
        server.replace { head in
            switch head.method {
            case "HEAD": return "HTTP/1.1 204 No\r\nUpload-Offset: 990\r\n\r\n"
            case "PATCH":
                // A response that arrives before the call of `willComplete` ends the attempt without it.
                while kept.all.isEmpty { usleep(10_000) }
                return "HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n"
            default: return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
            }
        }
        let calls = Atomic<Int>(0)
        var request = request(.resumable)
        var resource = UploadResource(url: server.url("/uploads/1"), uploadProtocol: .resumable)
        resource.offset = ByteCount(990)
        request.resource = resource
        request.keepResource = { [server] resource in
            kept.append(resource)
            guard resource?.mayBeComplete == true else { return }
            // The response arrives before the permission to send the rest.
            try? await poll { server.readReplacements.contains("PATCH") }
        }
        request.willComplete = { _ = calls.add(1, ordering: .relaxed) }
        // The rest is so short that all of it waits for `willComplete`.
        let receipt = try await upload(noise(1000), request)
        #expect(receipt.response.status == 200)
        #expect(server.methods == ["HEAD", "PATCH", "POST"])
        #expect(kept.all.map { $0?.mayBeComplete } == [true, nil])
        #expect(calls.load(ordering: .relaxed) == 1)
    }

    // MARK: hostile servers

    @Test func credentialsStayAtTheOrigin() async throws {
        let other = server.url("/uploads/1", host: "localhost")
        server.replace { head in
            switch head.method {
            case "POST": "HTTP/1.1 104 Upload\r\nLocation: \(other)\r\n\r\n"
            case "HEAD": "HTTP/1.1 204 No\r\nUpload-Offset: 0\r\n\r\n"
            default: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
            }
        }
        var request = request(.resumable)
        request.fields = ["Authorization: x"]
        _ = try await upload([1, 2], request)
        #expect(server.methods == ["POST", "HEAD", "PATCH"])
        #expect(server.requests.map { $0["authorization"] } == ["x", nil, nil])
    }

    /// The server to which a redirect leads cannot choose a path at the first server for the credentials.
    @Test func anotherOriginSendsNoCredentialsBack() async throws {
        let other = try UploadServer()
        let (there, back) = (other.url("/in"), server.url("/uploads/1"))
        server.replace { head in
            switch head.method {
            case "POST": "HTTP/1.1 307 There\r\nLocation: \(there)\r\nContent-Length: 0\r\n\r\n"
            default: "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"
            }
        }
        other.replace { _ in
            "HTTP/1.1 201 Created\r\nTus-Resumable: 1.0.0\r\nLocation: \(back)\r\n"
                + "Content-Length: 0\r\n\r\n"
        }
        let kept = Kept()
        var request = request(.tus)
        request.fields = ["Authorization: x"]
        request.keepResource = { kept.append($0) }
        _ = try await upload([1, 2], request)
        #expect(server.methods == ["POST", "PATCH"])
        #expect(server.requests.map { $0["authorization"] } == ["x", nil])
        // The next process does not send the credentials to that server, either.
        request.resource = kept.all.first ?? nil
        _ = try await upload([1, 2], request)
        #expect(server.methods == ["POST", "PATCH", "HEAD"])
        #expect(server.requests.last?["authorization"] == nil)
    }

    /// The URL of a resource grants write access.
    @Test(arguments: [UploadProtocol.resumable, .tus], ["127.0.0.1", "localhost"])
    func theURLOfAResourceIsNotReported(
        _ uploadProtocol: UploadProtocol,
        host: String
    ) async throws {
        let secret = server.url("/uploads/secret", host: host)
        server.replace { head in
            switch head.method {
            case "POST":
                "HTTP/1.1 104 Upload\r\nLocation: \(secret)\r\n\r\nHTTP/1.1 201 Created\r\n"
                    + "Tus-Resumable: 1.0.0\r\nLocation: \(secret)\r\n"
                    + "Upload-Complete: ?0\r\nContent-Length: 0\r\n\r\n"
            case "HEAD": "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
            default: ""
            }
        }
        let events = Events()
        let error = await failure([1, 2], request(uploadProtocol, events: events))
        // The fields of the response to the request itself are those that the client receives.
        let responses = events.responses.filter { $0.status == 503 }
        #expect(!responses.isEmpty)
        let others = events.all.filter { if case .responded = $0 { false } else { true } }
        let told = "\(String(describing: error)) \(others) \(responses)"
        #expect(!told.contains("secret"))
        #expect(
            told.contains(host == "localhost" ? server.url("/", host: host) : server.url("/in"))
        )
    }

    @Test func aResourceOutsideOfTheDomainsIsNotAsked() async throws {
        let other = server.url("/uploads/1", host: "localhost")
        server.replace { _ in "HTTP/1.1 104 Upload\r\nLocation: \(other)\r\n\r\n" }
        var request = request(.resumable)
        request.method = .put
        request.allowedDomains = AllowedDomains(["127.0.0.1"])
        _ = await failure(noise(1 << 16), request)
        #expect(Set(server.methods) == ["PUT"])
    }

    @Test(.timeLimit(.minutes(5))) func interimAnswersHaveAnEnd() async throws {
        let flood = String(
            repeating: "HTTP/1.1 104 Upload\r\nLocation: /u/1\r\n\r\n",
            count: 10_000
        )
        server.replace { $0.method == "HEAD" ? nil : flood }
        let error = await failure(noise(1 << 16), request(.resumable))
        guard case .unacceptable(_, .answer(let detail)) = error else {
            Issue.record("expected a refusal, found \(String(describing: error))")
            return
        }
        #expect(detail.contains("heads and trailers"))
    }

    @Test func progressInInterimAnswersIsNoFlood() async throws {
        // The number exceeds the limit for a small body: 350 KB are permitted for 64 MiB.
        server.tellProgress(8)
        let receipt = try await upload(noise(64 << 20), request(.resumable))
        #expect(receipt.response.status == 201)
    }

    @Test func anOffsetBeyondWhatWasSentEndsTheUpload() async throws {
        server.cut(after: 10)
        server.replace {
            $0.method == "HEAD" ? "HTTP/1.1 204 No\r\nUpload-Offset: 33554432\r\n\r\n" : nil
        }
        let error = await failure(noise(32 << 20), request(.resumable))
        guard case .unacceptable(_, .answer) = error else {
            Issue.record("expected a refusal, found \(String(describing: error))")
            return
        }
    }
}

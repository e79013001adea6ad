import BackgroundTransfer
import Foundation
import FoundationNetworking
import StageModel
import StageTesting
import Testing

/// Downloads of a session in this process, with responses other than the plain content.
@Suite(.server, .directory, .timeLimit(.minutes(5)))
struct ForegroundDownloadTests: ForegroundSuite {
    /// Downloads, and returns the content of the file.
    private func download(_ session: URLSession, _ request: URLRequest) async throws -> Data {
        let (file, _) = try await session.download(for: request)
        defer { try? FileManager.default.removeItem(at: file) }
        return try Data(contentsOf: file)
    }

    private func download(_ session: URLSession, _ path: String) async throws -> Data {
        try await download(session, URLRequest(url: try url(path)))
    }

    /// Downloads a response that breaks off, and returns the resume data.
    private func cutDownload(_ answer: Answer) async throws -> Data? {
        server.answer("/a", with: answer)
        let failure = await #expect(throws: URLError.self) {
            _ = try await session().download(from: url("/a"))
        }
        return failure?.downloadTaskResumeData
    }

    // MARK: - Resuming

    @Test(arguments: [1_000_000, 2_000_000])
    func contentThatBecameShorterIsRequestedAgain(_ size: Int) async throws {
        let kept = try await cutDownload(.content(data(3_000_000)).cut(after: 2_000_000))
        let content = [UInt8](repeating: 5, count: size)
        // The server ignores `If-Range`, as some that compare only sizes do.
        server.answer("/a", with: .content(content).ignoringIfRange())
        let (file, response) = try await session().download(resumeFrom: try #require(kept))
        defer { try? FileManager.default.removeItem(at: file) }
        #expect(try Data(contentsOf: file) == Data(content))
        #expect((response as? HTTPURLResponse)?.statusCode == 200)
        #expect(server.requests.map { $0["range"] } == [nil, "bytes=2000000-", nil])
    }

    @Test func resumeDataIsNotUsedUpByADownloadThatNeverBegins() async throws {
        let content = data(3_000_000)
        let kept = try await cutDownload(.content(content).cut(after: 2_000_000))
        let task = session().downloadTask(withResumeData: try #require(kept))
        let returned = try #require(await task.cancelByProducingResumeData())
        try await poll { task.state == .completed }
        #expect((task.error as? URLError)?.code == .cancelled)
        #expect((task.error as? URLError)?.downloadTaskResumeData == returned)
        let ended = session()
        ended.finishTasksAndInvalidate()
        let failure = await #expect(throws: URLError.self) {
            _ = try await ended.download(resumeFrom: returned)
        }
        let unused = try #require(failure?.downloadTaskResumeData)
        server.answer("/a", with: .content(content))
        let (file, _) = try await session().download(resumeFrom: unused)
        defer { try? FileManager.default.removeItem(at: file) }
        #expect(try Data(contentsOf: file) == Data(content))
        #expect(server.requests.map { $0["range"] } == [nil, "bytes=2000000-"])
    }

    @Test func aServerThatRefusesEveryRequestHasNoContent() async throws {
        let kept = try await cutDownload(.content(data(3_000_000)).cut(after: 2_000_000))
        server.answer("/a", with: .status(416).with { $0.content = [4, 1, 6] })
        let (file, response) = try await session().download(resumeFrom: try #require(kept))
        defer { try? FileManager.default.removeItem(at: file) }
        #expect(try Data(contentsOf: file) == Data([4, 1, 6]))
        #expect((response as? HTTPURLResponse)?.statusCode == 416)
    }

    @Test func contentOfNoVersionLeavesNothing() async throws {
        let answer = Answer.content(data(3_000_000)).tagged(nil)
        #expect(try await cutDownload(answer.cut(after: 2_000_000)) == nil)
    }

    @Test func theChallengeOfAProxyIsTheResponse() async throws {
        let answer = Answer.status(407).with { $0.content = Array("who are you?".utf8) }
        server.answer("/a", with: answer.field("Proxy-Authenticate", "Basic realm=\"proxy\""))
        let recorder = DataRecorder(credential: .init(user: "u", password: "p", persistence: .none))
        let session = session(recorder)
        let (file, response) = try await session.download(from: url("/a"))
        defer { try? FileManager.default.removeItem(at: file) }
        #expect(try Data(contentsOf: file) == Data("who are you?".utf8))
        #expect((response as? HTTPURLResponse)?.statusCode == 407)
        #expect(server.counts(for: "/a").requests == 1)
        #expect(!recorder.lines.contains { $0.hasPrefix("challenge") })
    }

    // MARK: - Redirects

    @Test func cookiesOfRedirectsAreKeptAndSent() async throws {
        server.answer("/a", with: .redirect(to: "/b").field("Set-Cookie", "one=1; Path=/"))
        server.answer("/b", with: .redirect(to: "/c").field("Set-Cookie", "two=2; Path=/"))
        server.answer("/c", with: .content([1]))
        let session = session()
        #expect(try await download(session, "/a") == Data([1]))
        func cookies(_ path: String) -> [String]? {
            server.requests(for: path).last?["cookie"]?.components(separatedBy: "; ").sorted()
        }
        #expect(cookies("/a") == nil)
        #expect(cookies("/b") == ["one=1"])
        #expect(cookies("/c") == ["one=1", "two=2"])
        #expect(try await download(session, "/c") == Data([1]))
        #expect(cookies("/c") == ["one=1", "two=2"])
    }

    @Test func credentialsOfADownloadStayWithTheirOrigin() async throws {
        server.answer("/a", with: .redirect(to: server.url("/b", host: "localhost")))
        server.answer("/b", with: .redirect(to: server.url("/c")))
        server.answer("/c", with: .content([1]))
        let session = session {
            $0.httpAdditionalHeaders = ["Authorization": "Bearer s", "X-Session": "1"]
        }
        var asked = URLRequest(url: try url("/a"))
        asked.setValue("a=1", forHTTPHeaderField: "Cookie")
        asked.setValue("kept", forHTTPHeaderField: "X-Name")
        #expect(try await download(session, asked) == Data([1]))
        #expect(server.requests.map { $0["authorization"] } == ["Bearer s", nil, nil])
        #expect(server.requests.map { $0["cookie"] } == ["a=1", nil, nil])
        #expect(server.requests.map { $0["x-session"] } == ["1", "1", "1"])
        #expect(server.requests.map { $0["x-name"] } == ["kept", "kept", "kept"])
    }

    // MARK: - Content codings

    @Test(arguments: [200, 404])
    func contentThatIsEncodedUnaskedIsDecoded(_ status: Int) async throws {
        let packed = try ArchiveFormat.tarGzip.compress(data(300_000))
        let answer = Answer.content(packed).field("Content-Encoding", "gzip")
        server.answer("/a", with: answer.with { $0.status = status })
        let recorder = DataRecorder()
        let task = session(recorder).downloadTask(with: try url("/a"))
        task.resume()
        try await poll { recorder.lines.last?.hasPrefix("completed") == true }
        #expect(task.error == nil)
        #expect(recorder.file == Data(data(300_000)))
        #expect(task.countOfBytesReceived == 300_000)
        #expect(task.countOfBytesExpectedToReceive == NSURLSessionTransferSizeUnknown)
        #expect(server.requests[0]["accept-encoding"] == "identity")
    }

    @Test(arguments: [false, true])
    func encodedContentThatIsCutLeavesNothing(_ isChunked: Bool) async throws {
        let packed = try ArchiveFormat.tarGzip.compress(noise(300_000))
        let answer = Answer.content(packed).field("Content-Encoding", "gzip").cut(after: 200_000)
        let kept = try await cutDownload(answer.with { $0.isChunked = isChunked })
        #expect(kept == nil)
        #expect(server.counts(for: "/a").requests == 1)
    }

    @Test func encodedContentIsNeverAppended() async throws {
        let content = noise(3_000_000)
        let plain = Answer.content(content)
        let kept = try await cutDownload(plain.cut(after: 2_000_000))
        let packed = Answer.content(try ArchiveFormat.tarGzip.compress(content))
            .field("Content-Encoding", "gzip")
        // A range of the encoded form, with the requested version and total size.
        let part = packed.with { answer in
            answer.status = 206
            answer.content = Array(answer.content[..<1_000_000])
            answer.fields["Content-Range"] = "bytes 2000000-2999999/3000000"
            answer.entityTag = plain.entityTag
        }
        server.answer("/a", with: part, packed)
        let (file, _) = try await session().download(resumeFrom: try #require(kept))
        defer { try? FileManager.default.removeItem(at: file) }
        #expect(try Data(contentsOf: file) == Data(content))
    }
}

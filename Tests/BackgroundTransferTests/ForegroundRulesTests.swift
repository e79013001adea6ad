import BackgroundTransfer
import Foundation
import FoundationNetworking
import StageTesting
import Synchronization
import Testing

/// Rules of sessions in this process, one for each test.
@Suite(.server, .directory, .timeLimit(.minutes(5)))
struct ForegroundRulesTests: ForegroundSuite {
    // MARK: - Tasks

    @Test func aSuspendedTaskFollowsNoRedirect() async throws {
        server.answer("/a", with: .redirect(to: "/b"))
        server.answer("/b", with: .content([1]))
        server.answer("/other", with: .content([2]))
        let held = Mutex<BackgroundTransfer.URLSessionTask?>(nil)
        let recorder = DataRecorder { request in
            held.withLock { $0 }?.suspend()
            return request
        }
        let session = session(recorder)
        let task = session.dataTask(with: try url("/a"))
        held.withLock { $0 = task }
        task.resume()
        try await poll { task.state == .suspended }
        // A request that begins later receives its response meanwhile.
        for _ in 0..<10 { _ = try await self.session().data(from: url("/other")) }
        #expect(server.requests(for: "/b").isEmpty)
        task.resume()
        try await poll { recorder.lines.last == "completed: -" }
        #expect(recorder.data == Data([1]))
    }

    @Test(arguments: [TimeInterval.nan, .infinity])
    func aTimeLimitThatIsNoNumberIsNone(_ seconds: TimeInterval) async throws {
        server.answer("/a", with: .content([1]))
        let session = session { $0.timeoutIntervalForResource = seconds }
        var asked = try request("/a", "GET")
        asked.timeoutInterval = seconds
        #expect(try await session.data(for: asked).0 == Data([1]))
    }

    @Test func theDelegateOfATaskIsReleasedAtItsEnd() async throws {
        server.answer("/a", with: .content([1]))
        let task = session().dataTask(with: try url("/a"))
        weak var held: DataRecorder?
        do {
            let recorder = DataRecorder()
            held = recorder
            task.delegate = recorder
            task.resume()
        }
        try await poll { task.state == .completed && task.delegate == nil && held == nil }
    }

    @Test func resumeDataServesOneDownloadAtATime() async throws {
        let content = data(3_000_000)
        let answer = Answer.content(content)
        server.answer("/a", with: answer.cut(after: 2_000_000), answer.stalled(after: 1000))
        let failure = await #expect(throws: URLError.self) {
            _ = try await self.session().download(from: url("/a"))
        }
        let kept = try #require(failure?.downloadTaskResumeData)
        let session = session()
        let first = session.downloadTask(withResumeData: kept)
        first.resume()
        try await poll { server.counts(for: "/a").requests == 2 }
        await expect(code: .cannotOpenFile) { try await session.download(resumeFrom: kept) }
        first.cancel()
    }

    @Test func aCancelledDownloadLeavesNoFile() async throws {
        let mark = Array(UUID().uuidString.utf8)
        server.answer("/a", with: .content(mark + data(3_000_000)).stalled(after: 2_000_000))
        let task = session().downloadTask(with: try url("/a"))
        task.resume()
        var location: URL?
        try await poll {
            location = directory(ofPart: mark)
            return location != nil
        }
        task.cancel()
        let path = try #require(location).path
        try await poll { task.state == .completed }
        #expect(!FileManager.default.fileExists(atPath: path))
    }

    /// The directory of the unfinished download whose content begins with `mark`.
    private func directory(ofPart mark: [UInt8]) -> URL? {
        let all = try? FileManager.default.contentsOfDirectory(
            at: FileManager.default.temporaryDirectory,
            includingPropertiesForKeys: nil
        )
        return all?.filter { $0.lastPathComponent.hasPrefix("stagepack-download.") }
            .first { folder in
                let file = try? FileHandle(
                    forReadingFrom: folder.appendingPathComponent("content.part.1")
                )
                return (try? file?.read(upToCount: mark.count)) == Data(mark)
            }
    }

    @Test func aRequestWithoutItsBodyHasNoTypeOfOne() async throws {
        server.answer("/a", with: .redirect(to: "/b", status: 303))
        server.answer("/b", with: .content([1]))
        var asked = try request("/a", "POST")
        asked.httpBody = Data("{}".utf8)
        asked.setValue("application/json", forHTTPHeaderField: "Content-Type")
        _ = try await session().data(for: asked)
        let types = server.requests.map { $0["content-type"] }
        #expect(types == ["application/json", nil])
    }

    // MARK: - Cookies

    @Test func cookiesAreNotKeptWhereTheRulesSaySo() async throws {
        server.answer("/a", with: .content([1]).field("Set-Cookie", "one=1; Path=/"))
        let session = session { $0.httpCookieAcceptPolicy = .never }
        for _ in 0..<2 { _ = try await session.data(from: url("/a")) }
        #expect(server.requests.map { $0["cookie"] } == [nil, nil])
    }

    @Test func aRequestMayHaveNothingToDoWithCookies() async throws {
        server.answer("/a", with: .content([1]).field("Set-Cookie", "one=1; Path=/"))
        server.answer("/b", with: .content([1]).field("Set-Cookie", "two=2; Path=/"))
        let session = session()
        var asked = try request("/a", "GET")
        asked.httpShouldHandleCookies = false
        _ = try await session.data(for: asked)
        for _ in 0..<2 { _ = try await session.data(from: url("/b")) }
        asked.url = try url("/b")
        _ = try await session.data(for: asked)
        #expect(server.requests.map { $0["cookie"] } == [nil, nil, "two=2", nil])
    }

    @Test func aResumedDownloadHasNothingToDoWithCookiesEither() async throws {
        let answer = Answer.content(data(3_000_000))
        server.answer("/cookie", with: .content([1]).field("Set-Cookie", "one=1; Path=/"))
        server.answer("/a", with: answer.cut(after: 2_000_000), answer)
        let session = session()
        _ = try await session.data(from: url("/cookie"))
        var asked = try request("/a", "GET")
        asked.httpShouldHandleCookies = false
        let wanted = asked
        let failure = await #expect(throws: URLError.self) {
            _ = try await session.download(for: wanted)
        }
        let kept = try #require(failure?.downloadTaskResumeData)
        let (file, _) = try await session.download(resumeFrom: kept)
        try FileManager.default.removeItem(at: file)
        #expect(server.requests(for: "/a").map { $0["cookie"] } == [nil, nil])
        #expect(server.requests(for: "/a").last?["range"] == "bytes=2000000-")
    }

    @Test func cookiesGoToTheirPathAndSchemeAlone() async throws {
        server.answer("/a", with: .content([1]).field("Set-Cookie", "one=1; Path=/deep"))
        server.answer("/b", with: .content([1]).field("Set-Cookie", "two=2; Path=/; Secure"))
        server.answer("/deep/c", with: .content([1]))
        let session = session()
        for path in ["/a", "/b", "/deep/c", "/b"] { _ = try await session.data(from: url(path)) }
        #expect(server.requests.map { $0["cookie"] } == [nil, nil, "one=1", nil])
    }

    // MARK: - Redirects

    @Test func theUserOfAURLStaysWithItsOrigin() async throws {
        server.answer("/a", with: .redirect(to: "/b"))
        server.answer("/b", with: .redirect(to: server.url("/c", host: "localhost")))
        server.answer("/c", with: .content([1]))
        let start = try URL(text: "http://u:p@127.0.0.1:\(server.port)/a")
        _ = try await session().data(from: start)
        let (file, _) = try await session().download(from: start)
        try FileManager.default.removeItem(at: file)
        let sent = server.requests.map { $0["authorization"] }
        #expect(sent == ["Basic dTpw", "Basic dTpw", nil, "Basic dTpw", "Basic dTpw", nil])
    }
}

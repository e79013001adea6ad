import BackgroundTransfer
import Foundation
import FoundationNetworking
import StageTesting
import Synchronization
import Testing

/// Time limits of tasks in this process, and the errors and metrics of failed tasks.
@Suite(.server, .directory, .timeLimit(.minutes(5)))
struct ForegroundFailureTests: ForegroundSuite {
    /// A kind of task.
    enum Kind: CaseIterable {
        case data
        case download
        case upload
        /// A download that is not interrupted when it is suspended.
        case postedDownload

        func makeTask(
            _ session: URLSession,
            _ request: URLRequest
        ) -> BackgroundTransfer.URLSessionTask {
            var request = request
            switch self {
            case .data: return session.dataTask(with: request)
            case .download: return session.downloadTask(with: request)
            case .upload: return session.uploadTask(with: request, from: Data([1]))
            case .postedDownload:
                request.httpMethod = "POST"
                return session.downloadTask(with: request)
            }
        }
    }

    // MARK: - Invalidated sessions

    @Test func aTaskThatIsCreatedTooLateDoesNotDelayTheEndOfItsSession() async throws {
        server.answer("/a", with: .content([1, 2, 3]).stalled(after: 1))
        let recorder = DataRecorder()
        let session = session(recorder)
        let task = session.dataTask(with: try url("/a"))
        task.resume()
        try await poll { server.requests.count == 1 }
        session.finishTasksAndInvalidate()
        let late = session.dataTask(with: try url("/a"))
        task.cancel()
        try await poll("found \(recorder.lines)") { recorder.lines.last == "invalid" }
        try await poll { session.delegate == nil }
        let later = session.dataTask(with: try url("/a"))
        for refused in [late, later] {
            refused.resume()
            try await poll { refused.state == .completed }
            #expect((refused.error as? URLError)?.code == .cancelled)
        }
        #expect(recorder.lines.last == "invalid")
        #expect(server.requests.count == 1)
    }

    @Test func aSessionThatHasEndedRetainsNoTask() async throws {
        let recorder = DataRecorder()
        let session = session(recorder)
        session.finishTasksAndInvalidate()
        try await poll { recorder.lines.last == "invalid" }
        weak var task: BackgroundTransfer.URLSessionTask?
        do {
            let late = session.dataTask(with: try url("/a"))
            task = late
            #expect(late.state == .suspended)
        }
        try await poll { task == nil }
    }

    // MARK: - Time limits

    @Test(.apart, arguments: [Kind.data, .upload, .postedDownload])
    func aSuspendedTaskDoesNotTimeOut(_ kind: Kind) async throws {
        // On a busy machine, a short time may end before the task is suspended.
        for limit in [3, 20, 60] as [TimeInterval] where try await suspend(kind, longerThan: limit)
        {
            return
        }
        Issue.record("the response came too late for each limit")
    }

    /// Suspends a task for longer than its time limit, and resumes it; returns `false` if the time ended before.
    private func suspend(_ kind: Kind, longerThan limit: TimeInterval) async throws -> Bool {
        let gate = Gate()
        defer { gate.open() }
        server.answer(
            "/held",
            with: .script { wire in
                wire.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
                gate.wait()
                wire.send("cd")
                wire.end()
            }
        )
        server.answer("/silent", with: .content([1, 2]).stalled(after: 1))
        let recorder = DataRecorder()
        let session = session(recorder) { $0.timeoutIntervalForRequest = limit }
        let task = kind.makeTask(session, URLRequest(url: try url("/held")))
        task.resume()
        try await poll { task.response != nil || task.state == .completed }
        task.suspend()
        guard task.state == .suspended else { return false }
        // A task that begins later, and is not suspended, times out meanwhile.
        let silent = try url("/silent")
        await expect(code: .timedOut) { try await session.data(from: silent) }
        #expect(task.state == .suspended)
        gate.open()
        task.resume()
        try await poll { recorder.lines.last?.hasPrefix("completed") == true }
        #expect(recorder.lines.last == "completed: -")
        #expect((kind == .postedDownload ? recorder.file : recorder.data) == Data("abcd".utf8))
        return true
    }

    @Test(arguments: Kind.allCases)
    func theTimeOfTheResourceContinuesWhileATaskIsSuspended(_ kind: Kind) async throws {
        server.answer("/a", with: .content(data(100_000)).stalled(after: 50_000))
        let session = session { $0.timeoutIntervalForResource = 1 }
        let task = kind.makeTask(session, URLRequest(url: try url("/a")))
        task.resume()
        task.suspend()
        try await poll { task.state == .completed }
        #expect((task.error as? URLError)?.code == .timedOut)
    }

    @Test(.apart) func aDownloadThatIsOutOfTimeLeavesWhatItHas() async throws {
        let content = data(3_000_000)
        let answer = Answer.content(content)
        // On a busy machine, a short time may end before any content has come.
        var resumeData: Data?
        for limit in [3, 20, 100] as [TimeInterval] where resumeData == nil {
            server.answer("/a", with: answer.stalled(after: 2_000_000))
            let session = session { $0.timeoutIntervalForResource = limit }
            let failure = await #expect(throws: URLError.self) {
                _ = try await session.download(from: url("/a"))
            }
            #expect(failure?.code == .timedOut)
            resumeData = failure?.downloadTaskResumeData
        }
        let kept = try #require(resumeData)
        server.answer("/a", with: answer)
        let (file, _) = try await self.session().download(resumeFrom: kept)
        defer { try? FileManager.default.removeItem(at: file) }
        #expect(try Data(contentsOf: file) == Data(content))
        #expect(server.requests.last?["range"] != nil)
    }

    // MARK: - Answers and codes

    @Test(arguments: Kind.allCases)
    func theHeadOfAnAnswerStaysAfterAFailure(_ kind: Kind) async throws {
        let cut = Answer.content(data(100_000)).cut(after: 50_000).field("X-Name", "kept")
        server.answer("/a", with: cut)
        let recorder = DataRecorder()
        let task = kind.makeTask(session(recorder), URLRequest(url: try url("/a")))
        task.resume()
        try await poll { recorder.lines.last?.hasPrefix("completed") == true }
        #expect((task.error as? URLError)?.code == .networkConnectionLost)
        let response = try #require(task.response as? HTTPURLResponse)
        #expect(response.statusCode == 200)
        #expect(response.value(forHTTPHeaderField: "X-Name") == "kept")
    }

    @Test func aHandlerIsGivenTheHeadOfAFailedAnswer() async throws {
        server.answer("/a", with: .content(data(100_000)).cut(after: 50_000))
        let heads = Mutex<[Int]>([])
        let session = session()
        let location = try url("/a")
        @Sendable func note(_ response: URLResponse?) {
            heads.withLock { $0.append((response as? HTTPURLResponse)?.statusCode ?? 0) }
        }
        session.dataTask(with: location) { _, response, _ in note(response) }.resume()
        session.downloadTask(with: location) { _, response, _ in note(response) }.resume()
        session.uploadTask(with: try request("/a", "PUT"), from: Data([1])) { _, response, _ in
            note(response)
        }
        .resume()
        try await poll { heads.withLock { $0.count } == 3 }
        #expect(heads.withLock { $0 } == [200, 200, 200])
    }

    /// A way in which a request fails.
    enum Failure: CaseIterable {
        case noHost
        case noServer
        case noEncryption
        case dropped
        case cut
        case silent
        case invalid
        case endless
        case undecodable
        case unknownCoding

        var code: URLError.Code {
            switch self {
            case .noHost: .cannotFindHost
            case .noServer: .cannotConnectToHost
            case .noEncryption: .secureConnectionFailed
            case .dropped, .cut: .networkConnectionLost
            case .silent: .timedOut
            case .invalid: .badServerResponse
            case .endless: .httpTooManyRedirects
            case .undecodable, .unknownCoding: .cannotDecodeContentData
            }
        }

        /// The server's response, if the request reaches it.
        var answer: Answer {
            let answer = Answer.content([1, 2, 3, 4])
            return switch self {
            case .cut: answer.cut(after: 2)
            case .silent: answer.stalled(after: 2)
            case .invalid: .script { $0.send("SMTP/1.0 220\r\n\r\n") }
            case .endless: .redirect(to: "/a")
            case .undecodable: answer.field("Content-Encoding", "gzip")
            case .unknownCoding: answer.field("Content-Encoding", "secret")
            default: .dropped
            }
        }
    }

    @Test(arguments: Failure.allCases)
    func dataAndDownloadTasksFailWithTheSameCodes(_ failure: Failure) async throws {
        server.answer("/a", with: failure.answer)
        let text =
            switch failure {
            case .noHost: "http://nowhere.invalid/a"
            case .noServer: closedURL
            case .noEncryption: "https://127.0.0.1:\(server.port)/a"
            default: server.url("/a")
            }
        var request = URLRequest(url: try #require(URL(string: text)))
        if failure == .silent { request.timeoutInterval = 0.3 }
        for kind in [Kind.data, .download, .postedDownload] {
            let recorder = DataRecorder()
            let task = kind.makeTask(session(recorder), request)
            task.resume()
            try await poll { recorder.lines.last?.hasPrefix("completed") == true }
            let error = task.error as? URLError
            #expect(error?.code == failure.code, "\(kind): \(error.map { "\($0)" } ?? "")")
            #expect(recorder.file == nil)
        }
    }
}

import BackgroundTransfer
import Foundation
import FoundationNetworking
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Downloads and uploads of a session in this process, and the common parts of their requests.
@Suite(.server, .directory, .timeLimit(.minutes(5)))
struct ForegroundTransferTests: ForegroundSuite {
    // MARK: - Downloads

    @Test func aDownloadHandsItsFileOver() async throws {
        server.answer("/a", with: .content(data(2_000_000)))
        let recorder = DataRecorder()
        let task = session(recorder).downloadTask(with: try url("/a"))
        task.resume()
        try await poll { recorder.lines.last == "completed: -" }
        #expect(recorder.file == Data(data(2_000_000)))
        #expect(!recorder.lines.contains("the file stays"))
        #expect(task.countOfBytesReceived == 2_000_000)
        #expect(task.progress.fractionCompleted == 1)
        let (file, response) = try await session().download(from: url("/a"))
        defer { try? FileManager.default.removeItem(at: file) }
        #expect(try Data(contentsOf: file) == Data(data(2_000_000)))
        #expect((response as? HTTPURLResponse)?.statusCode == 200)
    }

    @Test func theBodyOfAnErrorIsTheFile() async throws {
        server.answer("/a", with: .content([1, 2]).with { $0.status = 503 })
        let (file, response) = try await session().download(from: url("/a"))
        defer { try? FileManager.default.removeItem(at: file) }
        #expect(try Data(contentsOf: file) == Data([1, 2]))
        #expect((response as? HTTPURLResponse)?.statusCode == 503)
        #expect(server.counts(for: "/a").requests == 1)
    }

    @Test func aDownloadContinuesFromTheBytesOfAnInterruptedOne() async throws {
        let content = data(3_000_000)
        let answer = Answer.content(content)
        server.answer("/a", with: answer.cut(after: 2_000_000), answer)
        var resumeData: Data?
        do {
            _ = try await session().download(from: url("/a"))
            Issue.record("half a download is none")
        } catch let error as URLError {
            #expect(error.code == .networkConnectionLost)
            resumeData = error.downloadTaskResumeData
        }
        let kept = try #require(resumeData)
        let recorder = DataRecorder()
        session(recorder).downloadTask(withResumeData: kept).resume()
        try await poll { recorder.lines.last == "completed: -" }
        #expect(recorder.file == Data(content))
        #expect(recorder.lines.contains { $0.hasPrefix("resumed at ") })
        #expect(server.counts(for: "/a").bytes < 3_500_000)
        await expect(code: .cannotOpenFile) { try await session().download(resumeFrom: kept) }
    }

    @Test func anotherVersionIsNeverAppended() async throws {
        let (old, new) = (data(3_000_000), [UInt8](repeating: 5, count: 3_000_000))
        server.answer("/a", with: Answer.content(old).cut(after: 2_000_000), .content(new))
        let failure = await #expect(throws: URLError.self) {
            _ = try await session().download(from: url("/a"))
        }
        let kept = try #require(failure?.downloadTaskResumeData)
        let (file, _) = try await session().download(resumeFrom: kept)
        defer { try? FileManager.default.removeItem(at: file) }
        #expect(try Data(contentsOf: file) == Data(new))
    }

    @Test func aCancelledDownloadHandsOutWhatItHas() async throws {
        let content = data(3_000_000)
        let answer = Answer.content(content)
        server.answer("/a", with: answer.stalled(after: 2_000_000), answer)
        let recorder = DataRecorder()
        let task = session(recorder).downloadTask(with: try url("/a"))
        task.resume()
        try await poll { task.countOfBytesReceived > 1_500_000 }
        let kept = try #require(await task.cancelByProducingResumeData())
        try await poll { recorder.lines.last == "completed: -999" }
        let (file, _) = try await session().download(resumeFrom: kept)
        defer { try? FileManager.default.removeItem(at: file) }
        #expect(try Data(contentsOf: file) == Data(content))
        #expect(server.counts(for: "/a").bytes < 3_500_000)
    }

    @Test func aSuspendedDownloadContinues() async throws {
        let content = data(3_000_000)
        let answer = Answer.content(content)
        server.answer("/a", with: answer.stalled(after: 2_000_000), answer)
        let recorder = DataRecorder()
        let task = session(recorder).downloadTask(with: try url("/a"))
        task.resume()
        try await poll { task.countOfBytesReceived > 1_500_000 }
        task.suspend()
        task.resume()
        try await poll { recorder.lines.last == "completed: -" }
        #expect(recorder.file == Data(content))
    }

    @Test func aDownloadThatStartsAgainReportsItsBytesAgain() async throws {
        // Without a validator, no range can be appended.
        let answer = Answer.content(data(3_000_000)).tagged(nil)
        server.answer("/a", with: answer.stalled(after: 2_000_000), answer)
        let recorder = DataRecorder()
        let task = session(recorder).downloadTask(with: try url("/a"))
        task.resume()
        try await poll { recorder.newlyWritten == 2_000_000 }
        task.suspend()
        task.resume()
        try await poll { recorder.lines.last == "completed: -" }
        #expect(recorder.newlyWritten == 5_000_000)
    }

    @Test func resumeDataOfOthersIsRefused() async throws {
        await expect(code: .cannotDecodeRawData) {
            try await session().download(resumeFrom: Data("{}".utf8))
        }
    }

    @Test func aDownloadWithABodyIsAFile() async throws {
        server.answer("/a", with: .content(data(10_000)))
        var asked = try request("/a", "POST")
        asked.httpBody = Data("query".utf8)
        let (file, _) = try await session().download(for: asked)
        defer { try? FileManager.default.removeItem(at: file) }
        #expect(try Data(contentsOf: file) == Data(data(10_000)))
        #expect(server.bodies(for: "/a") == [Array("query".utf8)])
    }

    // MARK: - Uploads

    @Test func bytesAndFilesAreSentAndTheAnswerIsReturned() async throws {
        server.answer("/a", with: .content([1]))
        let body = Data(data(3_000_000))
        let (answer, _) = try await session().upload(for: request("/a", "PUT"), from: body)
        #expect(answer == Data([1]))
        let file = try TemporaryDirectory.required().path.appending("file")
        try body.write(to: URL(fileURLWithPath: file.string))
        let url = URL(fileURLWithPath: file.string)
        _ = try await session().upload(for: request("/a", "POST"), fromFile: url)
        #expect(server.bodies(for: "/a") == [Array(body), Array(body)])
        #expect(server.requests.map(\.method) == ["PUT", "POST"])
        await expect(code: .fileDoesNotExist) {
            let gone = url.appendingPathExtension("not")
            return try await session().upload(for: request("/a", "POST"), fromFile: gone)
        }
    }

    @Test func theDelegateReceivesTheSentBytes() async throws {
        server.answer("/a", with: .content([1]))
        let recorder = DataRecorder()
        let body = Data(data(3_000_000))
        let task = session(recorder).uploadTask(with: try request("/a", "PUT"), from: body)
        task.resume()
        try await poll { recorder.lines.last == "completed: -" }
        #expect(recorder.sent.last == 3_000_000)
        #expect(recorder.sent == recorder.sent.sorted())
        #expect(task.countOfBytesExpectedToSend == 3_000_000)
        #expect(recorder.data == Data([1]))
    }

    @Test(arguments: [307, 401])
    func theDelegateReceivesTheBytesThatWereSentAgain(afterStatus status: Int) async throws {
        let first: Answer = status == 307 ? .redirect(to: "/a", status: status) : challenge
        server.answer("/a", with: first, .content([1]))
        let credential = URLCredential(user: "u", password: "p", persistence: .none)
        let recorder = DataRecorder(credential: credential)
        let body = Data(data(3_000_000))
        session(recorder).uploadTask(with: try request("/a", "PUT"), from: body).resume()
        try await poll { recorder.lines.last == "completed: -" }
        #expect(server.bodies(for: "/a").map(\.count) == [3_000_000, 3_000_000])
        // The totals start again at zero with the body.
        #expect(recorder.sent.filter { $0 == 3_000_000 }.count == 2)
        #expect(recorder.newlySent == 6_000_000)
    }

    @Test func streamsAreSentWithTheirLength() async throws {
        server.answer("/a", with: .content([1]))
        var asked = try request("/a", "POST")
        asked.httpBodyStream = InputStream(data: Data("stream".utf8))
        _ = try await session().data(for: asked)
        let recorder = DataRecorder()
        session(recorder).uploadTask(withStreamedRequest: try request("/a", "POST")).resume()
        try await poll { recorder.lines.last == "completed: -" }
        #expect(server.bodies(for: "/a") == [Array("stream".utf8), Array("streamed".utf8)])
    }

    @Test func aPostIsSentOnce() async throws {
        server.answer("/a", with: .dropped)
        var asked = try request("/a", "POST")
        asked.httpBody = Data("pay".utf8)
        await expect(code: .networkConnectionLost) { [asked] in
            try await session().data(for: asked)
        }
        #expect(server.counts(for: "/a").requests == 1)
        #expect(server.requests[0]["content-type"] == "application/x-www-form-urlencoded")
    }

    @Test(arguments: ["GET", "HEAD"])
    func aBodyWithoutAMethodForItIsRefused(_ method: String) async throws {
        var asked = try request("/a", method)
        asked.httpBody = Data("body".utf8)
        await expect(code: .dataLengthExceedsMaximum) { [asked] in
            try await session().data(for: asked)
        }
        #expect(server.requests.isEmpty)
    }

    // MARK: - Redirects

    @Test(arguments: [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
    func aRedirectKeepsOrDropsTheBody(_ status: Int, method: String) async throws {
        server.answer("/a", with: .redirect(to: "/b", status: status))
        server.answer("/b", with: .content([1]))
        var asked = try request("/a", "POST")
        asked.httpBody = Data("body".utf8)
        let (data, response) = try await session().data(for: asked)
        #expect(data == Data([1]))
        #expect(response.url?.path == "/b")
        #expect(server.requests.last?.method == method)
        #expect(server.bodies(for: "/b").count == (method == "POST" ? 1 : 0))
    }

    @Test func theDelegateDecidesOnRedirects() async throws {
        server.answer("/a", with: .redirect(to: "/b"))
        server.answer("/b", with: .content([1]))
        server.answer("/c", with: .content([2]))
        let other = try url("/c")
        let elsewhere = DataRecorder { request in
            var request = request
            request.url = other
            return request
        }
        let task = session(elsewhere).dataTask(with: try url("/a"))
        task.resume()
        try await poll { elsewhere.lines.last == "completed: -" }
        #expect(elsewhere.data == Data([2]))
        #expect(elsewhere.lines.first == "redirect 302 GET /b")
        #expect(task.currentRequest?.url == other)
        #expect(task.originalRequest?.url == (try url("/a")))
        let refusing = DataRecorder { _ in nil }
        session(refusing).dataTask(with: try url("/a")).resume()
        try await poll { refusing.lines.last == "completed: -" }
        #expect(refusing.lines.contains("response 302, 0"))
        #expect(server.requests(for: "/b").isEmpty)
    }

    @Test func aLoopOfRedirectsEnds() async throws {
        server.answer("/a", with: .redirect(to: "/a"))
        await expect(code: .httpTooManyRedirects) { try await session().data(from: url("/a")) }
    }

    @Test func credentialsStayWithTheirOrigin() async throws {
        server.answer("/a", with: .redirect(to: server.url("/b", host: "localhost")))
        server.answer("/b", with: .content([1]))
        var asked = try request("/a", "GET")
        asked.setValue("Bearer secret", forHTTPHeaderField: "Authorization")
        asked.setValue("kept", forHTTPHeaderField: "X-Name")
        _ = try await session().data(for: asked)
        #expect(server.requests[0]["authorization"] == "Bearer secret")
        #expect(server.requests[1]["authorization"] == nil)
        #expect(server.requests[1]["x-name"] == "kept")
    }

    // MARK: - Challenges and cookies

    private var challenge: Answer { .status(401).field("WWW-Authenticate", "Basic realm=\"r\"") }
    private let basic = "Basic dTpw"

    @Test(arguments: [false, true])
    func theDelegateAnswersAChallenge(_ isDownload: Bool) async throws {
        server.answer("/a", with: challenge, .content([1]))
        let credential = URLCredential(user: "u", password: "p", persistence: .none)
        let recorder = DataRecorder(credential: credential)
        let session = session(recorder)
        let task: BackgroundTransfer.URLSessionTask =
            isDownload
            ? session.downloadTask(with: try url("/a")) : session.dataTask(with: try url("/a"))
        task.resume()
        try await poll { recorder.lines.last == "completed: -" }
        #expect((isDownload ? recorder.file : recorder.data) == Data([1]))
        #expect(recorder.lines.contains("challenge r 0"))
        #expect(server.requests.map { $0["authorization"] } == [nil, basic])
    }

    @Test func metricsAreThoseOfAllRequests() async throws {
        server.answer("/a", with: challenge, .redirect(to: "/b", status: 307))
        server.answer("/b", with: .content([1]))
        let credential = URLCredential(user: "u", password: "p", persistence: .none)
        let recorder = DataRecorder(credential: credential)
        let body = Data(data(1000))
        session(recorder).uploadTask(with: try request("/a", "PUT"), from: body).resume()
        try await poll { recorder.lines.last == "completed: -" }
        let metrics = try #require(recorder.metrics)
        #expect(metrics.attemptCount == 3)
        #expect(metrics.redirectCount == 1)
        #expect(metrics.countOfBytesSent == 3000)
        let last = try #require(metrics.transactionMetrics.first)
        #expect(last.countOfRequestBodyBytesSent == 1000)
        #expect(try #require(last.fetchStartDate) > metrics.taskInterval.start)
    }

    @Test(arguments: [false, true])
    func aChallengeThatIsNotAnsweredIsTheAnswer(_ isDownload: Bool) async throws {
        server.answer("/a", with: challenge.with { $0.content = [4, 0, 1] })
        let content: Data
        if isDownload {
            let (file, _) = try await session().download(from: url("/a"))
            content = try Data(contentsOf: file)
            try FileManager.default.removeItem(at: file)
        } else {
            let (data, response) = try await session().data(from: url("/a"))
            #expect((response as? HTTPURLResponse)?.statusCode == 401)
            content = data
        }
        #expect(content == Data([4, 0, 1]))
    }

    @Test func aStoredCredentialIsTriedOnce() async throws {
        server.answer("/a", with: challenge, challenge, .content([1]))
        let space = URLProtectionSpace(
            host: "127.0.0.1",
            port: server.port,
            protocol: NSURLProtectionSpaceHTTP,
            realm: "r",
            authenticationMethod: NSURLAuthenticationMethodHTTPBasic
        )
        let session = session()
        session.configuration.urlCredentialStorage?.setDefaultCredential(
            URLCredential(user: "u", password: "p", persistence: .forSession),
            for: space
        )
        let (_, response) = try await session.data(from: url("/a"))
        #expect((response as? HTTPURLResponse)?.statusCode == 401)
        #expect(server.requests.map { $0["authorization"] } == [nil, basic])
    }

    @Test func cookiesAreKeptAndSentAlsoBetweenRedirects() async throws {
        server.answer("/a", with: .redirect(to: "/b").field("Set-Cookie", "one=1; Path=/"))
        server.answer("/b", with: .content([1]).field("Set-Cookie", "two=2; Path=/"))
        let session = session()
        _ = try await session.data(from: url("/a"))
        #expect(server.requests.last?["cookie"] == "one=1")
        _ = try await session.data(from: url("/b"))
        let sent = server.requests.last?["cookie"]?.components(separatedBy: "; ").sorted()
        #expect(sent == ["one=1", "two=2"])
        _ = try await self.session().data(from: url("/b"))
        #expect(server.requests.last?["cookie"] == nil, "cookies of a session are its own")
    }

    // MARK: - Sessions

    @Test func fieldsOfTheSessionAndTheRequestAreSent() async throws {
        server.answer("/a", with: .content([1]))
        let session = session { $0.httpAdditionalHeaders = ["X-One": "1", "X-Two": "session"] }
        var asked = try request("/a", "GET")
        asked.setValue("request", forHTTPHeaderField: "x-two")
        asked.setValue("", forHTTPHeaderField: "X-Empty")
        _ = try await session.data(for: asked)
        #expect(server.requests[0]["x-one"] == "1")
        #expect(server.requests[0]["x-two"] == "request")
        #expect(server.requests[0]["x-empty"] == "")
    }

    @Test func aCertificateOfAnUnknownAuthorityIsRefused() async throws {
        server.answer("/a", with: .content([1]))
        let directory = try TemporaryDirectory.required().path
        let front = try await TLSFront(port: server.port, below: directory)
        let secure = try #require(URL(string: front.baseURL + "/a"))
        await expect(code: .serverCertificateUntrusted) { try await session().data(from: secure) }
        await expect(code: .serverCertificateUntrusted) {
            try await session().download(from: secure)
        }
        #expect(server.requests.isEmpty)
    }

    @Test func connectionsAreUsedAgain() async throws {
        server.answer("/a", with: .content([1]))
        let session = session()
        for _ in 0..<5 {
            var asked = try request("/a", "GET")
            asked.cachePolicy = .reloadIgnoringLocalCacheData
            _ = try await session.data(for: asked)
        }
        #expect(server.connectionCount == 1)
    }

    @Test func aTaskHasADelegateOfItsOwn() async throws {
        server.answer("/a", with: .redirect(to: "/b"))
        server.answer("/b", with: .content([1]))
        let (ofSession, ofTask) = (DataRecorder(), DataRecorder())
        let session = session(ofSession)
        _ = try await session.data(from: url("/a"), delegate: ofTask)
        try await poll { ofTask.lines.contains("metrics 1") }
        #expect(ofTask.lines.first == "redirect 302 GET /b")
        #expect(ofSession.lines.isEmpty)
    }

    @Test func anInvalidatedSessionEndsWithItsTasks() async throws {
        server.answer("/a", with: .content([1]).slowed(to: 1))
        server.answer("/b", with: .content([1, 2, 3]).stalled(after: 1))
        let recorder = DataRecorder()
        let session = session(recorder)
        let done = session.dataTask(with: try url("/a"))
        let stuck = session.dataTask(with: try url("/b"))
        for task in [done, stuck] { task.resume() }
        try await poll { server.requests.count == 2 }
        session.finishTasksAndInvalidate()
        try await poll { done.state == .completed }
        #expect(!recorder.lines.contains("invalid"))
        session.invalidateAndCancel()
        try await poll { recorder.lines.last == "invalid" }
        #expect((stuck.error as? URLError)?.code == .cancelled)
        await expect(code: .cancelled) { try await session.data(from: url("/a")) }
    }

    @Test func aForegroundSessionRefusesDownloadContent() async throws {
        let content = DownloadContent(size: 3)
        let asked = URLRequest(url: try url("/a"))
        let task = session().downloadTask(with: asked, content: content)
        task.resume()
        try await poll { task.state == .completed }
        #expect((task.error as? URLError)?.code == .unsupportedURL)
        #expect(server.requests.isEmpty)
    }

    @Test func credentialsOfTheSessionStayWithTheFirstOrigin() async throws {
        server.answer("/a", with: .redirect(to: server.url("/b", host: "localhost")))
        server.answer("/b", with: .content([1]))
        let session = session {
            $0.httpAdditionalHeaders = ["Authorization": "Bearer s", "X": "1"]
        }
        _ = try await session.data(from: url("/a"))
        #expect(server.requests.map { $0["authorization"] } == ["Bearer s", nil])
        #expect(server.requests.map { $0["x"] } == ["1", "1"])
    }

    @Test func aRequestOfTheDelegateHasItsOwnMethodAndBody() async throws {
        server.answer("/a", with: .redirect(to: "/b", status: 307))
        server.answer("/b", with: .content([1]))
        let plain = try request("/b", "GET")
        let reading = DataRecorder { _ in plain }
        var posting = try request("/b", "POST")
        posting.httpBody = Data("own".utf8)
        let writing = DataRecorder { [posting] _ in posting }
        for recorder in [reading, writing] {
            var asked = try request("/a", "POST")
            asked.httpBody = Data("first".utf8)
            session(recorder).dataTask(with: asked).resume()
            try await poll { recorder.lines.last == "completed: -" }
        }
        #expect(server.requests(for: "/b").map(\.method) == ["GET", "POST"])
        #expect(server.bodies(for: "/b") == [Array("own".utf8)])
    }

    @Test func aPostThatWasAnsweredIsNotSentAgainWhereARedirectLeadsNowhere() async throws {
        server.answer("/a", with: .redirect(to: "http://nowhere.invalid/", status: 303))
        var asked = try request("/a", "POST")
        asked.httpBody = Data("pay".utf8)
        let session = session { $0.waitsForConnectivity = true }
        await expect(code: .ofUnknownName) { [asked] in try await session.data(for: asked) }
        #expect(server.counts(for: "/a").requests == 1)
    }

    @Test func aStreamThatWasReadIsRefused() async throws {
        server.answer("/a", with: .content([1]))
        var asked = try request("/a", "POST")
        asked.httpBodyStream = InputStream(data: Data("stream".utf8))
        _ = try await session().data(for: asked)
        await expect(code: .requestBodyStreamExhausted) { [asked] in
            try await session().data(for: asked)
        }
    }

    @Test func aLargeRedirectLeavesRoomForTheAnswer() async throws {
        let large = Answer.redirect(to: "/b").with { $0.content = data(8_000_000) }
        server.answer("/a", with: large)
        server.answer("/b", with: .content(data(8_000_000)))
        for _ in 0..<3 {
            let (answer, _) = try await session().data(from: url("/a"))
            #expect(answer.count == 8_000_000)
        }
    }

    @Test func aDownloadOfAFileIsACopy() async throws {
        let file = try TemporaryDirectory.required().path.appending("text")
        try Data("local".utf8).write(to: URL(fileURLWithPath: file.string))
        let (copy, _) = try await session().download(from: URL(fileURLWithPath: file.string))
        defer { try? FileManager.default.removeItem(at: copy) }
        #expect(try Data(contentsOf: copy) == Data("local".utf8))
        #expect(try Data(contentsOf: URL(fileURLWithPath: file.string)).count == 5)
    }

    @Test func aRangeOfTheRequestIsAnswered() async throws {
        server.answer("/a", with: .content(data(1000)))
        var asked = try request("/a", "GET")
        asked.setValue("bytes=10-19", forHTTPHeaderField: "Range")
        let (part, response) = try await session().data(for: asked)
        #expect(part == Data(data(1000)[10..<20]))
        #expect((response as? HTTPURLResponse)?.statusCode == 206)
        let (file, _) = try await session().download(for: asked)
        defer { try? FileManager.default.removeItem(at: file) }
        #expect(try Data(contentsOf: file) == part)
    }

    @Test func tasksAndHandlersEndWithTheirTransfer() async throws {
        server.answer("/a", with: .content([1]))
        let session = session()
        weak var held: Recipient?
        weak var task: BackgroundTransfer.URLSessionTask?
        do {
            let recipient = Recipient()
            held = recipient
            let made = session.dataTask(with: try url("/a")) { _, _, _ in recipient.take() }
            task = made
            made.resume()
        }
        try await poll { held == nil && task == nil }
    }

    @Test func aBackgroundSessionRefusesWhatEndsWithTheProcess() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        let refused = try url("/a")
        await expect(code: .unsupportedURL) { try await session.data(from: refused) }
        await expect(code: .unsupportedURL) { try await session.bytes(from: refused) }
        await expect(code: .unsupportedURL) { try await session.download(from: refused) }
        let task = session.dataTask(with: refused)
        task.resume()
        try await poll { task.state == .completed }
        #expect((task.error as? URLError)?.localizedDescription.contains("background") == true)
        #expect(world.daemon.tasks.isEmpty)
        try await world.end(session)
    }

    @Test func theHandlerOfARefusedTaskIsCalledOnceOnTheQueue() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        let asked = URLRequest(url: try url("/a"))
        let file = URL(fileURLWithPath: "/proc/self/exe")
        let ends = Mutex<[String]>([])
        @Sendable func note(_ call: String, isEmpty: Bool, error: (any Error)?) {
            let isOnQueue = OperationQueue.current === session.delegateQueue
            let code = (error as? URLError)?.code.rawValue ?? 0
            ends.withLock { $0.append("\(call) \(isEmpty && isOnQueue) \(code)") }
        }
        let tasks: [BackgroundTransfer.URLSessionTask] = [
            session.dataTask(with: asked) {
                note("data", isEmpty: $0 == nil && $1 == nil, error: $2)
            },
            session.downloadTask(with: asked) {
                note("download", isEmpty: $0 == nil && $1 == nil, error: $2)
            },
            session.downloadTask(withResumeData: Data()) {
                note("resumed", isEmpty: $0 == nil && $1 == nil, error: $2)
            },
            session.uploadTask(with: asked, fromFile: file) {
                note("file", isEmpty: $0 == nil && $1 == nil, error: $2)
            },
            session.uploadTask(with: asked, from: Data()) {
                note("bytes", isEmpty: $0 == nil && $1 == nil, error: $2)
            },
            session.dataTask(with: asked) {
                note("cancelled", isEmpty: $0 == nil && $1 == nil, error: $2)
            },
        ]
        for task in tasks.dropLast() { task.resume() }
        tasks.last?.cancel()
        try await world.end(session)
        let refused = ["data", "download", "resumed", "file", "bytes"].map { "\($0) true -1002" }
        #expect(ends.withLock { $0 } == refused + ["cancelled true -999"])
        #expect(!world.recorder.lines.contains { $0.hasPrefix("completed") })
    }
}

/// An object that a completion handler holds.
private final class Recipient: Sendable {
    func take() {}
}

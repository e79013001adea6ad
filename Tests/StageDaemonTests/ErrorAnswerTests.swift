import BackgroundTransfer
import Foundation
import StageControl
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Responses with an error status, as the delegate of a session receives them.
@Suite(.directory, .daemon, .server)
struct ErrorAnswerTests {
    private let server = TestServer.current

    private func answer(_ status: Int, _ text: String = "why not") -> Answer {
        Answer(content: Array(text.utf8)).with { $0.status = status }.field("X-Reason", "\(status)")
    }

    private func url(_ path: String) throws -> URL { try #require(URL(string: server.url(path))) }

    private func upload(
        by method: String,
        in session: URLSession
    ) throws -> URLSessionUploadTask {
        let directory = try TemporaryDirectory.required()
        try directory.write(noise(1000), to: "file", durably: false)
        var request = URLRequest(url: try url("/in"))
        request.httpMethod = method
        let file = URL(fileURLWithPath: directory.path.appending("file").string)
        return session.uploadTask(with: request, fromFile: file)
    }

    @Test(arguments: [400, 401, 403, 404, 410, 422, 501])
    func anErrorIsACompletedDownload(status: Int) async throws {
        let world = try await SessionWorld()
        let session = world.session()
        server.answer("/x", with: answer(status))
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        #expect(try await world.end(of: task) == nil)
        #expect(task.error == nil)
        #expect(task.status == status)
        let head = task.response as? HTTPURLResponse
        #expect(head?.value(forHTTPHeaderField: "x-reason") == "\(status)")
        let content = world.recorder.state.withLock { $0.contents[task.taskIdentifier] }
        #expect(content == Data("why not".utf8))
        // The delegate receives a challenge, and if it has no credential, the server receives the request once more.
        #expect(server.requests(for: "/x").count == (status == 401 ? 2 : 1))
        try await world.end(session)
    }

    @Test(arguments: [404, 410])
    func aFailureHasTheHeadOfTheAnswer(status: Int) async throws {
        let world = try await SessionWorld()
        let session = world.session { $0.failsOnErrorStatus = true }
        server.answer("/x", with: answer(status))
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        #expect(try await world.end(of: task)?.code == .fileDoesNotExist)
        #expect(task.status == status)
        #expect(world.recorder.state.withLock { $0.contents.isEmpty })
        try await world.end(session)
    }

    @Test(arguments: [true, false], [401, 422, 500])
    func failsOnErrorStatusAppliesToUploads(fails: Bool, status: Int) async throws {
        let world = try await SessionWorld()
        let session = world.session { $0.failsOnErrorStatus = fails }
        server.answer("/in", with: answer(status))
        let task = try upload(by: "POST", in: session)
        task.resume()
        let error = try await world.end(of: task)
        let code: URLError.Code =
            status == 401 ? .userAuthenticationRequired : .badServerResponse
        #expect(error?.code == (fails ? code : nil))
        #expect(task.status == status)
        let body = world.recorder.state.withLock { $0.bodies[task.taskIdentifier] }
        #expect(body == Data("why not".utf8))
        #expect(server.requests(for: "/in").count == 1)
        try await world.end(session)
    }

    @Test(arguments: [429, 500, 503])
    func anErrorThatPassesEndsNoDownload(status: Int) async throws {
        let world = try await SessionWorld()
        let session = world.session()
        server.answer("/x", with: answer(status), answer(status), .content([1, 2, 3]))
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        #expect(try await world.end(of: task) == nil)
        #expect(task.status == 200)
        let content = world.recorder.state.withLock { $0.contents[task.taskIdentifier] }
        #expect(content == Data([1, 2, 3]))
        try await world.end(session)
    }

    @Test(arguments: [429, 500, 503])
    func anErrorThatStaysIsDeliveredAfterSomeAttempts(status: Int) async throws {
        let world = try await SessionWorld()
        let session = world.session()
        server.answer("/x", with: answer(status))
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        #expect(try await world.end(of: task) == nil)
        #expect(task.status == status)
        let content = world.recorder.state.withLock { $0.contents[task.taskIdentifier] }
        #expect(content == Data("why not".utf8))
        #expect(server.requests(for: "/x").count == 6)
        try await world.end(session)
    }

    @Test func connectionsThatBreakAreNoErrorAnswers() async throws {
        let world = try await SessionWorld()
        let session = world.session()
        let whole = noise(2 << 20)
        // Each response has a head, but too little of the body for an immediate retry.
        let broken = (1...6).map { _ in Answer.content(whole).cut(after: 0) }
        server.answer("/x", with: broken + [answer(503), .content(whole)])
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        #expect(try await world.end(of: task) == nil)
        #expect([200, 206].contains(task.status))
        let received = world.recorder.state.withLock { $0.contents[task.taskIdentifier] }
        #expect(received == Data(whole))
        try await world.end(session)
    }

    @Test func anIdempotentUploadIsDeliveredItsErrorAfterSomeAttempts() async throws {
        let world = try await SessionWorld()
        let session = world.session { $0.requestsAreIdempotent = true }
        server.answer("/in", with: answer(503))
        let task = try upload(by: "POST", in: session)
        task.resume()
        #expect(try await world.end(of: task) == nil)
        #expect(task.status == 503)
        #expect(server.requests(for: "/in").count == 6)
        try await world.end(session)
    }

    @Test func aDownloadThatPostsIsDeliveredItsErrorAtOnce() async throws {
        let world = try await SessionWorld()
        let session = world.session()
        server.answer("/x", with: answer(503))
        var request = URLRequest(url: try url("/x"))
        request.httpMethod = "POST"
        let task = session.downloadTask(with: request)
        task.resume()
        #expect(try await world.end(of: task) == nil)
        #expect(task.status == 503)
        #expect(server.requests(for: "/x").count == 1)
        try await world.end(session)
    }

    @Test func aServerThatAsksForTooLongAPauseIsDelivered() async throws {
        let world = try await SessionWorld()
        let session = world.session()
        server.answer("/x", with: answer(503).field("Retry-After", "100000"))
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        #expect(try await world.end(of: task) == nil)
        #expect(task.status == 503)
        try await world.end(session)
    }

    @Test(arguments: [204, 300])
    func otherAnswersWithoutContentAreDelivered(status: Int) async throws {
        let world = try await SessionWorld()
        let session = world.session()
        server.answer("/x", with: .status(status))
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        #expect(try await world.end(of: task) == nil)
        #expect(task.status == status)
        let content = world.recorder.state.withLock { $0.contents[task.taskIdentifier] }
        #expect(content == Data())
        try await world.end(session)
    }

    @Test func thePageOfAnErrorIsNotContentThatIsKnown() async throws {
        let world = try await SessionWorld()
        let session = world.session()
        server.answer("/x", with: answer(404))
        let known = DownloadContent(sha256: sha256(noise(10)))
        let task = session.downloadTask(with: URLRequest(url: try url("/x")), content: known)
        task.resume()
        #expect(try await world.end(of: task)?.code == .fileDoesNotExist)
        #expect(task.status == 404)
        try await world.end(session)
    }

    @Test func theHeadIsHereWithTheFirstBytes() async throws {
        let world = try await SessionWorld()
        let session = world.session()
        let gate = Gate()
        let answer = Answer.content(noise(4 << 20)).field("X-Early", "1")
        server.answer("/x", with: answer.held(after: 1 << 20, until: gate))
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        try await poll("there is no head") { task.response != nil }
        #expect(task.state == .running)
        #expect(task.status == 200)
        #expect(
            (task.response as? HTTPURLResponse)?.value(forHTTPHeaderField: "X-Early") == "1"
        )
        #expect(task.countOfBytesExpectedToReceive == 4 << 20)
        try await poll("the delegate is told nothing before the end") {
            world.recorder.state.withLock { !$0.earlyStatuses.isEmpty }
        }
        gate.open()
        #expect(try await world.end(of: task) == nil)
        let early = world.recorder.state.withLock { $0.earlyStatuses }
        #expect(early.allSatisfy { $0 == 200 })
        try await world.end(session)
    }

    @Test func theHeadOfAFailureOutlivesClientAndDaemon() async throws {
        let world = try await SessionWorld()
        server.answer("/x", with: answer(410))
        try await world.daemon.makeSession(world.identifier)
        let id = try await world.daemon.download(server.url("/x"), in: world.identifier)
        try await world.daemon.wait(for: .failed, of: id)
        #expect(try await world.daemon.client.task(id).response?.status == 410)
        try await world.daemon.kill()
        try await world.daemon.start()
        let session = world.session()
        try await poll("no end is told") {
            world.recorder.state.withLock { $0.ended[Int(id)] } != nil
        }
        let events = world.recorder.state.withLock { $0.ended[Int(id)] }
        #expect(events??.code == .fileDoesNotExist)
        try await world.end(session)
    }
}

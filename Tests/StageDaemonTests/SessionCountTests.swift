import BackgroundTransfer
import Foundation
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Numbers, requests and metrics that an application reads of its tasks.
@Suite(.directory, .daemon, .server)
struct SessionCountTests {
    private let server = TestServer.current

    private func url(_ path: String) throws -> URL { try #require(URL(string: server.url(path))) }

    /// Downloads a file while no client is attached; returns the number of the task.
    private func endWhileAway(_ world: SessionWorld) async throws -> Int64 {
        try await world.daemon.makeSession(world.identifier)
        let id = try await world.daemon.download(server.url("/x"), in: world.identifier)
        try await world.daemon.wait(for: .completed, of: id)
        return id
    }

    @Test func aTaskThatEndedWithoutItsClientHasItsByteCounts() async throws {
        let world = try await SessionWorld()
        server.answer("/x", with: Answer.content(noise(5000)))
        let id = try await endWhileAway(world)
        let listed = try await world.daemon.client.task(id)
        #expect(listed.bytesReceived.rawValue == 5000)
        #expect(listed.bytesExpected?.rawValue == 5000)
        #expect(listed.response?.status == 200)
        let session = world.session()
        try await poll("no end is told") {
            world.recorder.state.withLock { $0.ended[Int(id)] } != nil
        }
        #expect(world.recorder.state.withLock { $0.counts[Int(id)] } == [5000, 5000])
        try await world.end(session)
    }

    @Test func aCancelledTaskKeepsItsCounts() async throws {
        let world = try await SessionWorld()
        let session = world.session()
        server.answer(
            "/x",
            with: Answer.content(noise(8 << 20)).stalled(after: 2 << 20)
        )
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        // The last bytes are reported, too, although nothing is received after them.
        try await poll("not all is told") { task.countOfBytesReceived == 2 << 20 }
        task.cancel()
        #expect(try await world.end(of: task)?.code == .cancelled)
        #expect(task.countOfBytesReceived == 2 << 20)
        #expect(task.countOfBytesExpectedToReceive == 8 << 20)
        #expect(task.status == 200)
        try await world.end(session)
    }

    @Test func finishedEventsIsReportedOnceAfterTheBacklog() async throws {
        let world = try await SessionWorld()
        server.answer("/x", with: Answer.content(noise(10)))
        let id = try await endWhileAway(world)
        let session = world.session()
        try await poll("the backlog is not told of") {
            world.recorder.state.withLock { $0.lines } == ["finished events"]
        }
        #expect(world.recorder.state.withLock { $0.ended[Int(id)] } != nil)
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        _ = try await world.end(of: task)
        try await world.end(session)
        #expect(world.recorder.state.withLock { $0.lines } == ["finished events", "invalid"])
    }

    @Test func finishedEventsIsNotReportedWithoutABacklog() async throws {
        let world = try await SessionWorld()
        server.answer("/x", with: Answer.content(noise(10)))
        let session = world.session()
        for _ in 1...2 {
            let task = session.downloadTask(with: try url("/x"))
            task.resume()
            _ = try await world.end(of: task)
        }
        try await world.end(session)
        #expect(world.recorder.state.withLock { $0.lines } == ["invalid"])
    }

    @Test func requestsAreWholeAndFollowRedirects() async throws {
        let world = try await SessionWorld()
        let session = world.session()
        server.answer("/x", with: .redirect(to: "/y"))
        server.answer("/y", with: .content([1]))
        var request = URLRequest(url: try url("/x"))
        request.setValue("value", forHTTPHeaderField: "X-Name")
        request.cachePolicy = .reloadIgnoringLocalCacheData
        let task = session.downloadTask(with: request)
        #expect(task.originalRequest == request)
        #expect(task.currentRequest?.url == request.url)
        task.resume()
        _ = try await world.end(of: task)
        #expect(task.originalRequest == request)
        #expect(task.currentRequest?.url == (try url("/y")))
        #expect(task.currentRequest?.value(forHTTPHeaderField: "X-Name") == "value")
        try await world.end(session)
    }

    @Test func anUploadHasItsMethodAndNoBody() async throws {
        let world = try await SessionWorld()
        let session = world.session()
        server.answer("/in", with: Answer(content: Array("thanks".utf8)))
        let directory = try TemporaryDirectory.required()
        try directory.write(noise(1000), to: "file", durably: false)
        var request = URLRequest(url: try url("/in"))
        request.httpMethod = "PUT"
        request.httpBody = Data("ignored".utf8)
        let file = URL(fileURLWithPath: directory.path.appending("file").string)
        let task = session.uploadTask(with: request, fromFile: file)
        #expect(task.originalRequest?.httpMethod == "PUT")
        #expect(task.originalRequest?.httpBody == nil)
        task.resume()
        _ = try await world.end(of: task)
        #expect(task.countOfBytesSent == 1000 && task.countOfBytesExpectedToSend == 1000)
        #expect(task.countOfBytesReceived == 6 && task.countOfBytesExpectedToReceive == 6)
        try await world.end(session)
    }

    @Test func metricsAreOfTheLastAttempt() async throws {
        let world = try await SessionWorld()
        let session = world.session()
        server.answer("/x", with: .redirect(to: "/y"))
        server.answer("/y", with: Answer.content(noise(5000)))
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        _ = try await world.end(of: task)
        let metrics = try #require(
            world.recorder.state.withLock { $0.metrics[task.taskIdentifier] }
        )
        #expect(metrics.redirectCount == 1)
        let last = try #require(metrics.transactionMetrics.first)
        #expect(last.networkProtocolName == "http/1.1")
        #expect(last.resourceFetchType == .networkLoad)
        #expect(last.remoteAddress == "127.0.0.1" && last.localAddress == "127.0.0.1")
        #expect(last.remotePort == (try url("/y")).port)
        #expect(last.countOfResponseBodyBytesReceived == 5000)
        #expect(last.countOfResponseHeaderBytesReceived > 0)
        #expect(last.countOfRequestHeaderBytesSent > 0)
        let dates = [
            last.fetchStartDate, last.requestStartDate, last.requestEndDate, last.responseStartDate,
        ]
        let known = try (dates + [last.responseEndDate]).map { try #require($0) }
        #expect(known == known.sorted())
        #expect(last.secureConnectionStartDate == nil)
        try await world.end(session)
    }
}

import BackgroundTransfer
import Foundation
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// A session at the real daemon.
@Suite(.directory, .daemon, .server)
struct URLSessionTests {
    @Test func aDownloadIsReportedInApplesOrder() async throws {
        let world = try await World()
        let content = [UInt8](repeating: 7, count: 300_000)
        let answer = Answer.content(content)
        world.server.answer("/moved", with: .redirect(to: "/cut"))
        world.server.answer("/cut", with: answer.field("A", "1").cut(after: 100_000), answer)
        let session = world.session()
        let task = session.downloadTask(with: try world.url("/moved"))
        #expect(task.state == .suspended)
        await session.flush()
        let states = try await world.tasks().map(\.state)
        #expect(states == [.suspended], "it is there before it is started")
        try await world.attach()
        task.resume()
        let lines = try await world.lines(5)
        #expect(lines.first == "created 1")
        #expect(lines[1].hasPrefix("resumed 1: ") && lines[1].hasSuffix(" of 300000"))
        #expect(lines[2...] == ["finished 1: /staged/1", "metrics 1: 1", "completed 1: well"])
        let pieces = world.recorder.lines.filter { $0.hasPrefix("wrote 1: ") }
        #expect(pieces.last?.hasSuffix(", 300000 of 300000") == true)
        #expect(task.state == .completed)
        #expect(task.progress.fractionCompleted == 1)
        let response = try #require(task.response as? HTTPURLResponse)
        #expect(response.url == (try world.url("/cut")))
        try await world.acknowledged(1)
        #expect(try await world.tasks().isEmpty)
        try await world.end(session)
    }

    @Test func anUploadIsReportedInApplesOrder() async throws {
        let world = try await World()
        world.server.answer("/up", with: .content(Array("thanks".utf8)))
        let session = world.session()
        let file = URL(fileURLWithPath: world.daemon.directory.appending("file").string)
        try Data("content".utf8).write(to: file)
        var request = URLRequest(url: try world.url("/up"))
        request.httpMethod = "PUT"
        request.setValue("x", forHTTPHeaderField: "X-Name")
        let task = session.uploadTask(with: request, fromFile: file)
        await session.flush()
        #expect(task.isStored)
        try FileManager.default.removeItem(at: file)
        try await world.attach()
        task.resume()
        #expect(
            try await world.lines(4) == [
                "created 1", "answered 1: thanks", "metrics 1: 0", "completed 1: well",
            ]
        )
        let head = try #require(world.server.requests(for: "/up").first)
        #expect(head.method == "PUT" && head["x-name"] == "x")
        #expect(world.server.bodies(for: "/up") == [Array("content".utf8)])
        #expect(task.countOfBytesSent == 7 && task.countOfBytesExpectedToSend == 7)
        try await world.end(session)
    }

    @Test func aFileIsUploadedInPresignedParts() async throws {
        let world = try await World()
        let session = world.session()
        let server = try PartServer()
        let content = noise(300_001)
        let file = URL(fileURLWithPath: world.daemon.directory.appending("file").string)
        try Data(content).write(to: file)
        let targets = server.targets(for: content.count, part: 100_000)
        let parts = try URLSession.PresignedParts(
            parts: targets.parts.map {
                URLSession.PresignedParts.Part(url: try URL(text: $0.url), size: $0.size.rawValue)
            },
            completionURL: URL(text: targets.completionURL),
            abortURL: URL(text: targets.abortURL ?? "")
        )
        let task = session.uploadTask(withPresignedParts: parts, fromFile: file)
        #expect(task.originalRequest?.url?.absoluteString == server.url("/complete"))
        try await world.attach()
        task.resume()
        _ = try await world.lines(4)
        #expect((task.response as? HTTPURLResponse)?.statusCode == 200)
        let isEqual = server.object == content
        #expect(isEqual && server.order == [1, 2, 3, 4] && server.faults == [])
        try await world.end(session)
    }

    @Test func anEventIsAcknowledgedAfterTheDelegateHasReturned() async throws {
        let world = try await World()
        let session = world.session()
        let gate = Gate()
        world.recorder.state.withLock { $0.block = { gate.wait() } }
        session.downloadTask(with: try world.url()).resume()
        #expect(try await world.lines(2).last == "finished 1: /staged/1")
        #expect(try await world.status().acknowledgedEvent == 0)
        gate.open()
        try await world.acknowledged(1)
        try await world.end(session)
    }

    @Test func suspendAndResumeNest() async throws {
        let world = try await World()
        let session = world.session()
        let task = session.downloadTask(with: try world.url("/late"))
        func isSuspended() async throws -> Bool {
            await session.flush()
            return try await world.tasks().map(\.state) == [.suspended]
        }
        task.suspend()
        task.resume()
        #expect(task.state == .suspended)
        task.resume()
        #expect(task.state == .running)
        task.resume()
        task.suspend()
        #expect(task.state == .suspended)
        #expect(try await isSuspended())
        task.suspend()
        task.resume()
        #expect(try await isSuspended())
        task.taskDescription = "target"
        task.resume()
        #expect(try await !isSuspended())
        #expect(try await world.tasks().first?.request.description == "target")
        task.cancel()
        #expect(task.state == .canceling || task.state == .completed)
        await session.flush()
        try await world.end(session)
        #expect(task.state == .completed)
        #expect((task.error as? URLError)?.code == .cancelled)
    }

    @Test func resumeDataContinuesFromTheReceivedBytes() async throws {
        let world = try await World()
        let answer = Answer.content([UInt8](repeating: 7, count: 20_000_000))
        world.server.answer("/stalls", with: answer.stalled(after: 1_000_000))
        let session = world.session()
        let task = session.downloadTask(with: try world.url("/stalls"))
        try await world.attach()
        task.resume()
        try await poll { task.countOfBytesReceived > 300_000 }
        let data = try #require(await task.cancelByProducingResumeData())
        try await poll { task.state == .completed }
        #expect((task.error as? URLError)?.downloadTaskResumeData == data)
        world.server.answer("/stalls", with: answer)
        let other = session.downloadTask(withResumeData: data)
        other.resume()
        await session.flush()
        #expect(other.daemonTaskNumber == 2)
        try await poll { other.state == .completed }
        #expect(other.error == nil)
        let heads = world.server.requests(for: "/stalls")
        #expect(heads.count == 2)
        #expect(heads.last?["range"] != nil)
        try await world.end(session)
    }

    /// The bytes of the resume data do not count as written again.
    @Test func nothingIsWrittenBeforeTheOffsetOfTheResumeDataIsKnown() async throws {
        let world = try await World()
        let gate = Gate()
        let answer = Answer.content([UInt8](repeating: 7, count: 20_000_000))
        world.server.answer("/stalls", with: answer.stalled(after: 1_000_000))
        let session = world.session()
        let task = session.downloadTask(with: try world.url("/stalls"))
        try await world.attach()
        task.resume()
        try await poll { task.countOfBytesReceived > 300_000 }
        let data = try #require(await task.cancelByProducingResumeData())
        // Only the head of the response arrives, so no further bytes are written.
        world.server.answer("/stalls", with: answer.held(until: gate))
        let other = session.downloadTask(withResumeData: data)
        other.resume()
        try await poll("found \(world.recorder.lines)") {
            world.recorder.lines.contains { $0.hasPrefix("resumed 2: ") }
        }
        let written = world.recorder.lines.filter { $0.hasPrefix("wrote 2: ") }
        #expect(written == [])
        gate.open()
        try await poll { other.state == .completed }
        #expect(other.error == nil)
        try await world.end(session)
    }

    @Test func aChallengeIsAnsweredLaterAndAcknowledgedThen() async throws {
        let world = try await World()
        let question = #"Digest realm="d", Basic realm="a, \"b\"""#
        world.server.answer(
            "/secret",
            with: Answer.status(401).field("WWW-Authenticate", question),
            .content([1])
        )
        let session = world.session()
        world.recorder.state.withLock {
            $0.credential = URLCredential(user: "u", password: "p", persistence: .none)
        }
        try await world.attach()
        session.downloadTask(with: try world.url("/secret")).resume()
        _ = try await world.lines(2)
        session.downloadTask(with: try world.url()).resume()
        let port = world.server.port
        #expect(
            try await world.lines(6) == [
                "created 1", #"challenged 1: 127.0.0.1:\#(port) a, "b" 0"#, "created 2",
                "finished 2: /staged/2", "metrics 2: 0", "completed 2: well",
            ]
        )
        #expect(try await world.status().acknowledgedEvent == 0)
        world.recorder.state.withLock { $0.challengeAnswer }?()
        try await world.acknowledged(3)
        let heads = world.server.requests(for: "/secret")
        #expect(heads.map { $0["authorization"] } == [nil, "Basic dTpw"])
        try await world.end(session)
    }

    @Test func aSessionThatFinishesTakesNoTasksAndEndsAfterTheLast() async throws {
        let world = try await World()
        let session = world.session()
        try await world.attach()
        session.downloadTask(with: try world.url("/late")).resume()
        session.finishTasksAndInvalidate()
        session.downloadTask(with: try world.url()).resume()
        _ = try await world.lines(3)
        world.open()
        let lines = try await world.lines(7)
        #expect(
            lines[2...] == [
                "completed 2: -997", "finished 1: /staged/1", "metrics 1: 0",
                "completed 1: well", "invalid: well",
            ]
        )
        // The delegate is released after its last call.
        try await poll { session.delegate == nil }
        #expect(try await world.status().acknowledgedEvent == 1)
        try await poll { try await !world.status().isAttached }
        let again = world.session()
        try await world.attach()
        try await world.end(again)
    }

    @Test func aSecondSessionWithTheSameIdentifierIsInvalid() async throws {
        let world = try await World()
        let session = world.session()
        let other = Recorder()
        let second = URLSession(
            configuration: world.configuration,
            delegate: other,
            delegateQueue: nil
        )
        try await poll { other.lines == ["invalid: -996"] }
        let task = second.downloadTask(with: try world.url())
        task.resume()
        try await poll { task.state == .completed }
        #expect((task.error as? URLError)?.code == .backgroundSessionInUseByAnotherProcess)
        #expect(await second.allTasks.allSatisfy { $0.state == .completed })
        try await world.attach()
        #expect(try await world.tasks().isEmpty)
        try await world.end(session)
    }

    @Test(arguments: [
        ("file:///etc/passwd", nil as String?, URLError.Code.unsupportedURL),
        ("ftp://host/file", nil, .unsupportedURL),
        ("http://host/file", "body", .unsupportedURL),
    ])
    func anImpossibleDownloadFailsWhenItIsResumed(
        _ url: String,
        body: String?,
        code: URLError.Code
    ) async throws {
        let world = try await World()
        let session = world.session()
        var request = URLRequest(url: try URL(text: url))
        request.httpBody = body.map { Data($0.utf8) }
        let task = session.downloadTask(with: request)
        await session.flush()
        #expect(task.daemonTaskNumber == nil && !task.isStored)
        #expect(task.state == .suspended)
        task.resume()
        #expect(try await world.lines(2) == ["created 1", "completed 1: \(code.rawValue)"])
        try await world.attach()
        #expect(try await world.tasks().isEmpty)
        try await world.end(session)
    }

    @Test func anUploadOfNoFileAndOtherResumeDataFail() async throws {
        let world = try await World()
        let session = world.session()
        let request = URLRequest(url: try world.url())
        let missing = try TemporaryDirectory.required().path.appending("missing")
        let file = URL(fileURLWithPath: missing.string)
        let upload = session.uploadTask(with: request, fromFile: file)
        upload.resume()
        let download = session.downloadTask(withResumeData: Data("{}".utf8))
        download.resume()
        _ = try await world.lines(4)
        #expect((upload.error as? URLError)?.code == .fileDoesNotExist)
        #expect((download.error as? URLError)?.code == .cannotDecodeRawData)
        try await world.end(session)
    }

    @Test func knownContentIsPartOfTheRequest() async throws {
        let world = try await World()
        let session = world.session()
        let request = URLRequest(url: try world.url())
        let digest = String(repeating: "0a", count: 32)
        let mirror = try URL(text: "http://other/file")
        let content = DownloadContent(size: 7, sha256: digest, mirrors: [mirror])
        let known = session.downloadTask(with: request, content: content)
        await session.flush()
        #expect(known.daemonTaskNumber == 1)
        let wire = try #require(try await world.tasks().first?.request)
        #expect(wire.size == ByteCount(7) && wire.sha256 == digest)
        #expect(wire.mirrors == ["http://other/file"])
        let wrong = session.downloadTask(with: request, content: DownloadContent(size: -1))
        await session.flush()
        #expect(wrong.daemonTaskNumber == nil)
        try await world.end(session)
    }

    @Test func aResumeTokenThatIsUsedUpIsNoWrongRequest() async throws {
        let world = try await World()
        let session = world.session()
        let data =
            #"{"request":{"kind":"download","token":"t","url":"http://h/"},"token":"r","version":1}"#
        let task = session.downloadTask(withResumeData: Data(data.utf8))
        task.resume()
        _ = try await world.lines(2)
        #expect((task.error as? URLError)?.code == .cannotOpenFile)
        try await world.end(session)
    }

    @Test(arguments: [
        (TimeInterval.infinity, Int.max, 1e9, 1 << 16), (0, 0, 0.001, 1), (.nan, 7, 1e9, 7),
    ])
    func limitsThatTheDaemonWouldRefuseAreReplaced(
        _ seconds: TimeInterval,
        connections: Int,
        keptSeconds: TimeInterval,
        keptConnections: Int
    ) async throws {
        let world = try await World()
        let configuration = world.configuration
        configuration.timeoutIntervalForRequest = seconds
        configuration.timeoutIntervalForResource = seconds
        configuration.httpMaximumConnectionsPerHost = connections
        let session = URLSession(
            configuration: configuration,
            delegate: world.recorder,
            delegateQueue: nil
        )
        try await world.attach()
        let kept = try await world.status().configuration
        #expect(kept.requestTimeout == keptSeconds && kept.resourceTimeout == keptSeconds)
        #expect(kept.maximumConnectionsPerHost == keptConnections)
        try await world.end(session)
    }

    @Test func aTaskThatTheDaemonRefusesFailsWithItsMessage() async throws {
        let world = try await World(configuration: #""tasksPerUser": 1"#)
        let session = world.session()
        try await world.attach()
        session.downloadTask(with: try world.url("/late")).resume()
        let task = session.downloadTask(with: try world.url())
        task.resume()
        #expect(try await world.lines(3).last == "completed 2: -3000")
        #expect(task.error?.localizedDescription.contains("1 task") == true)
        try await world.end(session)
    }
}

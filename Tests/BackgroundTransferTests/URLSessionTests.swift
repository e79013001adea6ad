import BackgroundTransfer
import Foundation
import StageControl
import StageModel
import StageTesting
import Synchronization
import Testing

@Suite(.directory)
struct URLSessionTests {
    @Test func aDownloadIsToldInApplesOrder() async throws {
        let world = try World()
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        #expect(task.state == .suspended)
        #expect(world.daemon.tasks.map(\.state) == [.suspended], "it is there before it is started")
        task.taskDescription = "target"
        task.resume()
        #expect(world.daemon.tasks.map(\.state) == [.waiting])
        #expect(world.daemon.tasks.first?.request.description == "target")
        try await world.attach()
        world.emit(.resumed, task) {
            $0.offset = ByteCount(10)
            $0.bytesExpected = ByteCount(30)
        }
        world.emit(.progress, task) { $0.bytesReceived = ByteCount(20) }
        _ = try await world.lines(3)
        world.emit(.completed, task) {
            $0.bytesReceived = ByteCount(30)
            $0.location = "/staged/1"
            $0.response = TransferResponse(
                url: "http://host/other",
                status: 200,
                headers: [["A", "1"], ["A", "2"]]
            )
            $0.metrics = TransferMetrics(ended: .now)
        }
        world.emit(.finishedEvents)
        #expect(
            try await world.lines(7) == [
                "created 1", "resumed 1: 10 of 30", "wrote 1: 10, 20 of 30",
                "wrote 1: 10, 30 of 30", "finished 1: /staged/1", "metrics 1: 0",
                "completed 1: well",
            ]
        )
        #expect(task.state == .completed)
        #expect(task.progress.fractionCompleted == 1)
        let response = try #require(task.response as? HTTPURLResponse)
        #expect(response.url?.absoluteString == "http://host/other")
        #expect(response.value(forHTTPHeaderField: "a") == "1, 2")
        try await world.acknowledged(1)
        try await world.end(session)
    }

    @Test func anUploadIsToldInApplesOrder() async throws {
        let world = try World()
        let session = world.session()
        let file = URL(fileURLWithPath: world.daemon.path).deletingLastPathComponent()
            .appendingPathComponent("file")
        try Data("content".utf8).write(to: file)
        var request = URLRequest(url: try URL(text: "https://host/file"))
        request.httpMethod = "PUT"
        request.setValue("x", forHTTPHeaderField: "X-Name")
        let task = session.uploadTask(with: request, fromFile: file)
        task.resume()
        let wire = try #require(world.daemon.tasks.first?.request)
        #expect(wire.kind == .upload && wire.method == "PUT" && wire.file == file.path)
        #expect(wire.headers == ["X-Name": "x"])
        try await world.attach()
        world.emit(.progress, task) {
            $0.bytesSent = ByteCount(7)
            $0.bytesExpected = ByteCount(7)
        }
        world.emit(.completed, task) { $0.body = Data("thanks".utf8) }
        #expect(
            try await world.lines(4) == [
                "created 1", "sent 1: 7, 7 of 7", "answered 1: thanks", "completed 1: well",
            ]
        )
        #expect(task.countOfBytesSent == 7 && task.countOfBytesExpectedToSend == 7)
        try await world.end(session)
    }

    @Test func anEventIsAcknowledgedAfterTheDelegateHasReturned() async throws {
        let world = try World()
        let session = world.session()
        let gate = Mutex(false)
        world.recorder.state.withLock {
            $0.block = { while !gate.withLock({ $0 }) { usleep(500) } }
        }
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        world.emit(.completed, task) { $0.location = "/staged/1" }
        #expect(try await world.lines(2).last == "finished 1: /staged/1")
        #expect(world.daemon.session(world.identifier)?.acknowledgedEvent == 0)
        gate.withLock { $0 = true }
        try await world.acknowledged(1)
        try await world.end(session)
    }

    @Test func suspendAndResumeNest() async throws {
        let world = try World()
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.suspend()
        task.resume()
        #expect(task.state == .suspended)
        task.resume()
        #expect(task.state == .running)
        task.resume()
        task.suspend()
        #expect(task.state == .suspended)
        #expect(world.daemon.tasks.map(\.state) == [.suspended])
        task.suspend()
        task.resume()
        #expect(world.daemon.tasks.map(\.state) == [.suspended])
        task.resume()
        #expect(world.daemon.tasks.map(\.state) == [.waiting])
        task.cancel()
        #expect(task.state == .canceling)
        #expect(world.daemon.tasks.map(\.state) == [.cancelled])
        try await world.end(session)
        #expect(task.state == .completed)
        #expect((task.error as? URLError)?.code == .cancelled)
    }

    @Test func resumeDataGoesOnWithWhatWasReceived() async throws {
        let world = try World()
        let session = world.session()
        var request = URLRequest(url: try URL(text: "http://host/file"))
        request.setValue("x", forHTTPHeaderField: "X-Name")
        let task = session.downloadTask(with: request)
        task.resume()
        try await world.attach()
        async let made = task.cancelByProducingResumeData()
        try await poll { world.daemon.tasks.first?.state == .cancelled }
        world.emit(.cancelled, task) { $0.resumeToken = "received" }
        let data = try #require(await made)
        #expect(try await world.lines(2).last == "completed 1: -999")
        #expect((task.error as? URLError)?.downloadTaskResumeData == data)
        let other = session.downloadTask(withResumeData: data)
        let wire = try #require(world.daemon.tasks.last?.request)
        #expect(wire.resumeToken == "received" && wire.url == "http://host/file")
        #expect(wire.headers == ["X-Name": "x"])
        #expect(wire.token != world.daemon.tasks.first?.request.token)
        #expect(other.taskIdentifier == 2)
        try await world.end(session)
    }

    @Test func aFailureHasItsCodeReasonAndResumeData() async throws {
        let world = try World()
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        world.emit(.failed, task) { event in
            var failure = TransferFailure(.timedOut, reason: "it took too long", status: nil)
            failure.resumeToken = "received"
            event.failure = failure
        }
        #expect(try await world.lines(2).last == "completed 1: -1001")
        let error = try #require(task.error as? URLError)
        #expect(error.localizedDescription == "it took too long")
        #expect(error.downloadTaskResumeData != nil)
        #expect(error.failingURL?.absoluteString == "http://host/file")
        try await world.end(session)
    }

    @Test func aChallengeIsAnsweredLaterAndAcknowledgedThen() async throws {
        let world = try World()
        let session = world.session()
        world.recorder.state.withLock {
            $0.credential = URLCredential(user: "u", password: "p", persistence: .none)
        }
        let task = session.downloadTask(with: try URL(text: "http://host:81/file"))
        task.resume()
        let other = session.downloadTask(with: try URL(text: "http://host/other"))
        try await world.attach()
        world.emit(.challenged, task) {
            $0.challenge = #"Digest realm="d", Basic realm="a, \"b\"""#
        }
        world.emit(.completed, other)
        let lines = try await world.lines(4)
        #expect(lines[2...] == [#"challenged 1: host:81 a, "b" 0"#, "completed 2: well"])
        #expect(world.daemon.session(world.identifier)?.acknowledgedEvent == 0)
        world.recorder.state.withLock { $0.challengeAnswer }?()
        try await world.acknowledged(2)
        let body = try #require(world.daemon.requests.last { $0.line == "PATCH /v1/tasks/1" }?.body)
        let change = try ControlFormat.decode(TransferChange.self, from: body)
        #expect(change.authorization == "Basic dTpw")
        try await world.end(session)
    }

    @Test func aSessionThatFinishesTakesNoTasksAndEndsAfterTheLast() async throws {
        let world = try World()
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        session.finishTasksAndInvalidate()
        let late = session.downloadTask(with: try URL(text: "http://host/late"))
        late.resume()
        world.emit(.completed, task)
        let lines = try await world.lines(5)
        #expect(lines.suffix(3) == ["completed -1: -997", "completed 1: well", "invalid: well"])
        #expect(session.delegate == nil)
        #expect(world.daemon.session(world.identifier)?.acknowledgedEvent == 1)
        try await poll { !world.daemon.isAttached(world.identifier) }
        let again = world.session()
        try await world.attach()
        try await world.end(again)
    }

    @Test func aSecondSessionOfAnIdentifierSaysWhyItIsNone() async throws {
        let world = try World()
        let session = world.session()
        let other = Recorder()
        let second = URLSession(
            configuration: world.configuration,
            delegate: other,
            delegateQueue: nil
        )
        try await poll { other.lines == ["invalid: -996"] }
        let task = second.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await poll { task.state == .completed }
        #expect((task.error as? URLError)?.code == .backgroundSessionInUseByAnotherProcess)
        #expect(world.daemon.tasks.isEmpty)
        try await world.end(session)
    }

    @Test(arguments: [
        ("file:///etc/passwd", nil as String?, URLError.Code.unsupportedURL),
        ("ftp://host/file", nil, .unsupportedURL),
        ("http://host/file", "body", .unsupportedURL),
    ])
    func whatCannotBeFailsWhenItIsStarted(
        _ url: String,
        body: String?,
        code: URLError.Code
    ) async throws {
        let world = try World()
        let session = world.session()
        var request = URLRequest(url: try URL(text: url))
        request.httpBody = body.map { Data($0.utf8) }
        let task = session.downloadTask(with: request)
        #expect(task.taskIdentifier == -1)
        #expect(task.state == .suspended)
        task.resume()
        #expect(try await world.lines(2) == ["created -1", "completed -1: \(code.rawValue)"])
        #expect(world.daemon.tasks.isEmpty)
        try await world.end(session)
    }

    @Test func anUploadOfNoFileAndOtherResumeDataFail() async throws {
        let world = try World()
        let session = world.session()
        let request = URLRequest(url: try URL(text: "http://host/file"))
        let file = URL(fileURLWithPath: "/nonexistent")
        let upload = session.uploadTask(with: request, fromFile: file)
        upload.resume()
        let download = session.downloadTask(withResumeData: Data("{}".utf8))
        download.resume()
        _ = try await world.lines(4)
        #expect((upload.error as? URLError)?.code == .fileDoesNotExist)
        #expect((download.error as? URLError)?.code == .cannotDecodeRawData)
        try await world.end(session)
    }

    @Test func whatIsKnownOfTheContentIsSaid() async throws {
        let world = try World()
        let session = world.session()
        let request = URLRequest(url: try URL(text: "http://host/file"))
        let digest = String(repeating: "0a", count: 32)
        let mirror = try URL(text: "http://other/file")
        let content = DownloadContent(size: 7, sha256: digest, mirrors: [mirror])
        #expect(session.downloadTask(with: request, content: content).taskIdentifier == 1)
        let wire = try #require(world.daemon.tasks.first?.request)
        #expect(wire.size == ByteCount(7) && wire.sha256 == digest)
        #expect(wire.mirrors == ["http://other/file"])
        let wrong = session.downloadTask(with: request, content: DownloadContent(size: -1))
        #expect(wrong.taskIdentifier == -1)
        try await world.end(session)
    }

    @Test func aResumeTokenThatIsUsedUpIsNoWrongRequest() async throws {
        let world = try World()
        let session = world.session()
        let data =
            #"{"request":{"kind":"download","token":"t","url":"http://h/"},"token":"r","version":1}"#
        let line = "POST /v1/sessions/\(world.identifier)/tasks"
        world.daemon.refuse(line, with: ControlRefusal(.invalid, "it is used up"))
        let task = session.downloadTask(withResumeData: Data(data.utf8))
        task.resume()
        _ = try await world.lines(2)
        #expect((task.error as? URLError)?.code == .cannotOpenFile)
        #expect(task.error?.localizedDescription == "it is used up")
        try await world.end(session)
    }

    @Test func whatTheDaemonRefusesFailsWithItsWords() async throws {
        let world = try World()
        let session = world.session()
        try await world.attach()
        let refusal = ControlRefusal(.quota, "too many tasks")
        world.daemon.refuse("POST /v1/sessions/\(world.identifier)/tasks", with: refusal)
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        #expect(try await world.lines(2).last == "completed -1: -3000")
        #expect(task.error?.localizedDescription == "too many tasks")
        try await world.end(session)
    }
}

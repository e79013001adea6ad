import BackgroundTransfer
import Foundation
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// A session with a simulated daemon that loses responses, forgets tasks and repeats messages.
@Suite(.directory)
struct ScriptedDaemonTests {
    @Test func aFailureHasItsCodeReasonAndResumeData() async throws {
        let world = try ScriptedWorld()
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

    @Test func codesOfANewerDaemonInterruptNoEvents() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        world.emit(.changed, task) { $0.pendingReasons = [PendingReason(.other("sunspots"))] }
        try await poll { task.pendingReasons == [PendingReason(.other("sunspots"))] }
        world.emit(.failed, task) {
            $0.failure = TransferFailure(.other("eclipse"), reason: "there is no sun")
        }
        let lines = try await world.lines(2)
        #expect(lines.last == "completed 1: -1")
        let error = try #require(task.error as? URLError)
        #expect(error.localizedDescription == "there is no sun")
        try await world.end(session)
    }

    @Test func eventsAfterTheEndOfATaskChangeNothing() async throws {
        let world = try ScriptedWorld()
        let directory = try TemporaryDirectory.required()
        try directory.write([UInt8](repeating: 1, count: 1000), to: "file", durably: false)
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = 1
        let session = world.session(on: queue)
        try await world.attach()
        // The session has processed the end, and has not called the delegate yet.
        queue.isSuspended = true
        let upload = session.uploadTask(
            with: URLRequest(url: try URL(text: "http://host/in")),
            fromFile: URL(fileURLWithPath: directory.path.appending("file").string)
        )
        let other = session.downloadTask(with: try URL(text: "http://host/file"))
        for task in [upload, other] { task.resume() }
        world.emit(.completed, upload) { event in
            event.bytesSent = ByteCount(1000)
            event.body = Data("thanks".utf8)
        }
        world.emit(.progress, upload) { event in
            event.bytesSent = ByteCount(500)
            event.bytesReceived = .zero
        }
        world.emit(.progress, other) { $0.bytesReceived = ByteCount(5) }
        try await poll { other.countOfBytesReceived == 5 }
        #expect(upload.countOfBytesSent == 1000 && upload.countOfBytesReceived == 6)
        queue.isSuspended = false
        try await poll { upload.state == .completed }
        #expect(upload.countOfBytesSent == 1000 && upload.countOfBytesReceived == 6)
        try await world.end(session)
    }

    @Test func aLostAnswerMakesOneTask() async throws {
        let world = try ScriptedWorld()
        world.daemon.leaveUnanswered("POST /v1/sessions/\(world.identifier)/tasks", count: 2)
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await poll { world.daemon.tasks.first?.state == .waiting }
        #expect(world.daemon.tasks.count == 1)
        try await world.attach()
        var event = SessionEvent(.completed, time: .now)
        event.task = 1
        world.daemon.emit(event, in: world.identifier)
        try await poll { task.state == .completed }
        try await world.end(session)
    }

    @Test func eventsWithoutAClientAreEachDeliveredOnce() async throws {
        let world = try ScriptedWorld()
        world.daemon.repeatEvents()
        let session = world.session()
        let first = session.downloadTask(with: try URL(text: "http://host/1"))
        let second = session.downloadTask(with: try URL(text: "http://host/2"))
        for task in [first, second] { task.resume() }
        try await world.attach()
        world.emit(.completed, first) { $0.location = "/staged/1" }
        _ = try await world.lines(4)
        try await world.acknowledged(1)
        for round in 1...3 {
            world.daemon.stop()
            if round == 1 { world.emit(.completed, second) { $0.location = "/staged/2" } }
            try world.daemon.start()
            try await world.attach()
        }
        let lines = try await world.lines(6)
        #expect(
            lines == [
                "created 1", "created 2", "finished 1: /staged/1", "completed 1: well",
                "finished 2: /staged/2", "completed 2: well",
            ]
        )
        try await world.acknowledged(2)
        try await world.end(session)
    }

    @Test func aLostAcknowledgementIsRepeated() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        let line = "POST /v1/sessions/\(world.identifier)/acknowledge"
        let task = session.downloadTask(with: try URL(text: "http://host/1"))
        task.resume()
        try await world.attach()
        world.daemon.refuse(
            line,
            with: ControlRefusal(.unavailable, message: "the daemon is ending")
        )
        world.emit(.completed, task)
        try await poll { world.daemon.requests.filter { $0.line == line }.count >= 2 }
        #expect(world.daemon.session(world.identifier)?.acknowledgedEvent == 0)
        world.daemon.refuse(line, with: nil)
        try await world.acknowledged(1)
        try await world.end(session)
    }

    @Test func aTaskThatTheDaemonLostFails() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        // A task that the daemon has not created yet would be created after its restart.
        try await poll("no task") { task.daemonTaskNumber != nil }
        world.daemon.stop()
        world.daemon.forget(1)
        try world.daemon.start()
        #expect(try await world.lines(2).last == "completed 1: -997")
        try await world.end(session)
    }

    @Test func theEndOfATaskThatCouldNotBeAskedForComesAgain() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        try await world.attach()
        let client = ControlClient(path: world.daemon.path)
        let request = TransferRequest(token: "t", kind: .download, url: "http://host/file")
        _ = try await client.createTasks([request], in: world.identifier)
        world.daemon.leaveUnanswered("GET /v1/tasks/1")
        var event = SessionEvent(.completed, time: .now)
        event.task = 1
        event.location = "/staged/1"
        world.daemon.emit(event, in: world.identifier)
        #expect(try await world.lines(2) == ["finished 1: /staged/1", "completed 1: well"])
        try await world.acknowledged(1)
        try await world.end(session)
    }

    @Test func fieldsOfTheSameNameAreOne() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        world.emit(.completed, task) {
            $0.response = TransferResponse(
                url: "http://host/other",
                status: 200,
                headers: [["A", "1"], ["A", "2"]]
            )
        }
        _ = try await world.lines(2)
        let response = try #require(task.response as? HTTPURLResponse)
        #expect(response.url?.absoluteString == "http://host/other")
        #expect(response.value(forHTTPHeaderField: "a") == "1, 2")
        try await world.end(session)
    }

    @Test func aReaderReceivesHoldsAndProgress() async throws {
        let world = try ScriptedWorld()
        let session = URLSession(configuration: world.configuration)
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        world.emit(.changed, task) { $0.pendingReasons = [PendingReason(.offline)] }
        world.emit(.progress, task) { $0.bytesReceived = ByteCount(5) }
        world.emit(.completed, task) { $0.location = "/staged/1" }
        var seen: [String] = []
        for await event in session.events {
            switch event {
            case .waiting(_, let reasons): seen.append("waiting \(reasons.map(\.kind))")
            case .progress(_, let count, let expected): seen.append("\(count) of \(expected)")
            case .finishedDownloading(_, let file): seen.append(file.path)
            case .completed(_, _, let error):
                seen.append("completed \(error?.code.rawValue ?? 0)")
                #expect(world.daemon.session(world.identifier)?.acknowledgedEvent == 0)
                session.finishTasksAndInvalidate()
            default: seen.append("?")
            }
        }
        #expect(
            seen == [
                "waiting [StageControl.PendingReason.Kind.offline]", "5 of -1", "/staged/1",
                "completed 0",
            ]
        )
        #expect(world.daemon.session(world.identifier)?.acknowledgedEvent == 1)
        world.daemon.stop()
    }

    /// The daemon sends the state of its tasks to each client that attaches.
    @Test func aReaderReceivesEqualReasonsOnce() async throws {
        let world = try ScriptedWorld()
        let session = URLSession(configuration: world.configuration)
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        world.emit(.changed, task) { $0.pendingReasons = [] }
        world.emit(.progress, task) { $0.bytesReceived = ByteCount(1) }
        var seen: [String] = []
        for await event in session.events {
            switch event {
            case .waiting(_, let reasons) where reasons.isEmpty:
                seen.append("waiting for nothing")
                world.emit(.completed, task)
            case .waiting(_, let reasons):
                seen.append("waiting for \(reasons.count)")
                world.emit(.changed, task) { $0.pendingReasons = reasons }
                world.emit(.progress, task) { $0.bytesReceived = ByteCount(2) }
            case .progress(_, let count, _):
                seen.append("\(count)")
                let reasons = count == 1 ? [PendingReason(.offline)] : []
                world.emit(.changed, task) { $0.pendingReasons = reasons }
            case .completed:
                seen.append("completed")
                session.finishTasksAndInvalidate()
            default: seen.append("?")
            }
        }
        #expect(seen == ["1", "waiting for 1", "2", "waiting for nothing", "completed"])
        world.daemon.stop()
    }

    @Test func theStateOfATaskIsKeptOnceForALateReader() async throws {
        let world = try ScriptedWorld()
        let session = URLSession(configuration: world.configuration)
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        for count in Int64(1)...20 {
            world.emit(.changed, task) {
                $0.pendingReasons = count.isMultiple(of: 2) ? [PendingReason(.offline)] : []
            }
            world.emit(.progress, task) { $0.bytesReceived = ByteCount(count) }
            try await poll { task.countOfBytesReceived == count }
            await session.flush()
        }
        world.emit(.resumed, task) { event in
            event.offset = ByteCount(5)
            event.bytesReceived = ByteCount(5)
        }
        world.emit(.progress, task) { $0.bytesReceived = ByteCount(8) }
        world.emit(.completed, task)
        try await poll { task.state == .completed }
        var seen: [String] = []
        for await event in session.events {
            switch event {
            case .waiting(_, let reasons): seen.append("waiting for \(reasons.count)")
            case .progress(_, let count, _): seen.append("\(count)")
            case .resumed(_, let offset, _): seen.append("resumed at \(offset)")
            case .completed:
                seen.append("completed")
                session.finishTasksAndInvalidate()
            default: seen.append("?")
            }
        }
        #expect(seen == ["waiting for 1", "resumed at 5", "8", "completed"])
        world.daemon.stop()
    }

    @Test func aResumptionThatTheDaemonRepeatsIsReportedOnce() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        let time = Date(timeIntervalSince1970: 1_800_000_000)
        for count in Int64(6)...7 {
            world.emit(.resumed, task) { ($0.time, $0.offset) = (time, ByteCount(5)) }
            world.emit(.progress, task) { $0.bytesReceived = ByteCount(count) }
            _ = try await world.lines(Int(count) - 3)
        }
        let lines = [
            "created 1", "resumed 1: 5 of -1", "wrote 1: 1, 6 of -1", "wrote 1: 1, 7 of -1",
        ]
        #expect(world.recorder.lines == lines)
        world.emit(.completed, task)
        try await world.end(session)
    }

    /// The delegate is told of a resumption before the first progress after it.
    @Test func aResumptionCountsTheBytesBeforeItsOffset() async throws {
        let world = try ScriptedWorld()
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = 1
        let session = world.session(on: queue)
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        world.emit(.resumed, task) { $0.offset = ByteCount(5) }
        #expect(try await world.lines(2).last == "resumed 1: 5 of -1")
        await withCheckedContinuation { continuation in
            queue.addOperation { continuation.resume() }
        }
        world.emit(.progress, task) { $0.bytesReceived = ByteCount(6) }
        #expect(try await world.lines(3).last == "wrote 1: 1, 6 of -1")
        world.emit(.completed, task)
        try await world.end(session)
    }

    /// The list of tasks that a client fetches when it attaches again may be older than events that have arrived.
    @Test func anOlderListOfTasksTakesNoBytesBack() async throws {
        let world = try ScriptedWorld()
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = 1
        let session = world.session(on: queue)
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        world.emit(.progress, task) { $0.bytesReceived = ByteCount(5) }
        _ = try await world.lines(2)
        queue.isSuspended = true
        world.emit(.progress, task) { $0.bytesReceived = ByteCount(6) }
        try await poll("\(task.countOfBytesReceived)") { task.countOfBytesReceived == 6 }
        world.daemon.stop()
        // No client is attached, so that this changes the list alone.
        world.emit(.progress, task) { $0.bytesReceived = .zero }
        try world.daemon.start()
        try await world.attach()
        // An event that follows the list.
        world.emit(.progress, task) { $0.bytesExpected = ByteCount(9) }
        try await poll { task.countOfBytesExpectedToReceive == 9 }
        #expect(task.countOfBytesReceived == 6)
        queue.isSuspended = false
        #expect(try await world.lines(3).last == "wrote 1: 1, 6 of 9")
        world.emit(.completed, task)
        try await world.end(session)
    }

    @Test func aCancelledReaderLeavesTheEventsToTheNext() async throws {
        let world = try ScriptedWorld()
        let session = URLSession(configuration: world.configuration)
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        let reader = Task { await session.events.contains { _ in true } }
        reader.cancel()
        #expect(await reader.value == false)
        world.emit(.progress, task) { $0.bytesReceived = ByteCount(5) }
        world.emit(.completed, task)
        var seen: [String] = []
        for await event in session.events {
            switch event {
            case .progress(_, let count, _): seen.append("\(count)")
            case .completed:
                seen.append("completed")
                session.finishTasksAndInvalidate()
            default: seen.append("?")
            }
        }
        #expect(seen == ["5", "completed"])
        world.daemon.stop()
    }

    @Test func aSessionIsEndedWithoutWaitingForTheDaemon() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        try await world.attach()
        let download = session.downloadTask(with: try URL(text: "http://host/file"))
        download.resume()
        await session.flush()
        let tasks = "POST /v1/sessions/\(world.identifier)/tasks"
        world.daemon.hold(tasks)
        let file = try TemporaryDirectory.required().path.appending("content").string
        try Data([1]).write(to: URL(fileURLWithPath: file))
        let url = try URL(text: "http://host/upload")
        // The daemon may take any time for its copy of a file.
        Foundation.Thread.detachNewThread {
            var request = URLRequest(url: url)
            request.httpMethod = "PUT"
            session.uploadTask(with: request, fromFile: URL(fileURLWithPath: file)).resume()
        }
        try await poll { world.daemon.requests.filter { $0.line == tasks }.count == 2 }
        let hasEnded = Flag()
        Foundation.Thread.detachNewThread {
            session.invalidateAndCancel()
            hasEnded.set()
        }
        try await poll("the caller waits") { hasEnded.isSet }
        try await poll("the download waits for the upload") { world.daemon.tasks.isEmpty }
        world.daemon.release()
        try await poll("found \(world.recorder.lines)") {
            world.recorder.lines.count { $0.hasSuffix(": -999") } == 2
        }
        try await world.end(session)
    }
}

import BackgroundTransfer
import Foundation
import StageControl
import StageModel
import StageTesting
import Synchronization
import Testing

@Suite(.directory)
struct ReconnectionTests {
    @Test func aDaemonThatIsStartedLaterIsToldOfEverything() async throws {
        let world = try World()
        world.daemon.stop()
        let session = world.session()
        let tasks = session.downloadTasks(with: [
            URLRequest(url: try URL(text: "http://host/1")),
            URLRequest(url: try URL(text: "http://host/2")),
            URLRequest(url: try URL(text: "http://host/3")),
        ])
        #expect(tasks.map(\.taskIdentifier) == [-1, -2, -3])
        tasks[0].taskDescription = "first"
        tasks[0].resume()
        tasks[2].resume()
        tasks[2].cancel()
        #expect(await session.allTasks.count == 2)
        #expect(session.connectionError?.code == .backgroundSessionWasDisconnected)
        #expect(world.daemon.tasks.isEmpty)
        try world.daemon.start()
        try await world.attach()
        #expect(
            world.daemon.tasks.map(\.state).sorted { $0.rawValue > $1.rawValue } == [
                .waiting, .suspended,
            ]
        )
        #expect(world.daemon.tasks.contains { $0.request.description == "first" })
        #expect(tasks.map(\.taskIdentifier) == [-1, -2, -3], "a number is for good")
        #expect(tasks[2].state == .completed)
        try await world.end(session)
    }

    @Test func aLostAnswerMakesOneTask() async throws {
        let world = try World()
        world.daemon.leaveUnanswered("POST /v1/sessions/\(world.identifier)/tasks", count: 2)
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        #expect(task.taskIdentifier < 0)
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

    @Test func aLostChangeIsMadeUpFor() async throws {
        let world = try World()
        let session = world.session()
        try await world.attach()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        world.daemon.stop()
        task.resume()
        task.priority = URLSessionTask.highPriority
        #expect(world.daemon.tasks.map(\.state) == [.suspended])
        try world.daemon.start()
        try await poll { world.daemon.tasks.map(\.state) == [.waiting] }
        try await poll { world.daemon.tasks.first?.request.priority == 0.75 }
        try await world.end(session)
    }

    @Test func whatHappenedWithoutAClientIsToldOnceEach() async throws {
        let world = try World()
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
        let world = try World()
        let session = world.session()
        let line = "POST /v1/sessions/\(world.identifier)/acknowledge"
        let task = session.downloadTask(with: try URL(text: "http://host/1"))
        task.resume()
        try await world.attach()
        world.daemon.refuse(line, with: ControlRefusal(.unavailable, "the daemon is ending"))
        world.emit(.completed, task)
        try await poll { world.daemon.requests.filter { $0.line == line }.count >= 2 }
        #expect(world.daemon.session(world.identifier)?.acknowledgedEvent == 0)
        world.daemon.refuse(line, with: nil)
        try await world.acknowledged(1)
        try await world.end(session)
    }

    @Test func aLaterProcessHasTheTasksAndWhatNobodyTookIn() async throws {
        let world = try World()
        let request = TransferRequest(token: "t", kind: .download, url: "http://host/file")
        let upload = TransferRequest(token: "u", kind: .upload, url: "http://host/file")
        let client = ControlClient(path: world.daemon.path)
        try await client.makeSession(world.identifier, configuration: SessionConfiguration())
        _ = try await client.createTasks([request, upload, request], in: world.identifier)
        var event = SessionEvent(.completed, time: .now)
        event.task = 1
        event.location = "/staged/1"
        world.daemon.emit(event, in: world.identifier)
        let session = world.session()
        let (data, uploads, downloads) = await session.tasks
        #expect(data.isEmpty && uploads.map(\.taskIdentifier) == [2])
        #expect(downloads.allSatisfy { $0.taskIdentifier == 1 })
        #expect(
            try await world.lines(3) == [
                "finished 1: /staged/1", "completed 1: well", "finished events",
            ]
        )
        try await world.acknowledged(1)
        #expect(await session.allTasks.map(\.taskIdentifier) == [2])
        try await world.end(session)
    }

    @Test func aDaemonThatLostItsRecordsGetsTheSessionAnew() async throws {
        let world = try World()
        let session = world.session()
        let old = session.downloadTask(with: try URL(text: "http://host/old"))
        old.resume()
        try await world.attach()
        world.emit(.completed, session.downloadTask(with: try URL(text: "http://host/older")))
        try await world.acknowledged(1)
        world.daemon.forgetAll()
        let new = session.downloadTask(with: try URL(text: "http://host/new"))
        new.resume()
        try await poll { old.state == .completed }
        #expect((old.error as? URLError)?.code == .backgroundSessionWasDisconnected)
        try await world.attach()
        #expect(world.daemon.tasks.map(\.request.url) == ["http://host/new"])
        var event = SessionEvent(.completed, time: .now)
        event.task = try #require(world.daemon.tasks.first?.id)
        #expect(world.daemon.emit(event, in: world.identifier).sequence == 1)
        try await poll { new.state == .completed }
        #expect(new.error == nil)
        try await world.acknowledged(1)
        try await world.end(session)
    }

    @Test func aSessionKeepsItsHandlerUnlessItIsGivenAnother() async throws {
        let world = try World()
        let configuration = world.configuration
        let handler = LaunchHandler(command: ["/bin/true"])
        configuration.launchHandler = handler
        let first = URLSession(
            configuration: configuration,
            delegate: world.recorder,
            delegateQueue: nil
        )
        try await world.attach()
        first.finishTasksAndInvalidate()
        _ = try await world.lines(1)
        try await poll { !world.daemon.isAttached(world.identifier) }
        let second = world.session()
        try await world.attach()
        #expect(world.daemon.session(world.identifier)?.configuration.handler == handler)
        try await world.end(second)
    }

    @Test func aTaskThatTheDaemonLostFails() async throws {
        let world = try World()
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        world.daemon.stop()
        world.daemon.forget(1)
        try world.daemon.start()
        #expect(try await world.lines(2).last == "completed 1: -997")
        try await world.end(session)
    }

    @Test func whatAnotherProcessTookInBeforeIsNotTold() async throws {
        let world = try World()
        let client = ControlClient(path: world.daemon.path)
        try await client.makeSession(world.identifier, configuration: SessionConfiguration())
        let request = TransferRequest(token: "t", kind: .download, url: "http://host/file")
        _ = try await client.createTasks([request], in: world.identifier)
        let other = try await client.events(of: world.identifier)
        let session = world.session()
        #expect(await session.allTasks.map(\.taskIdentifier) == [1])
        var event = SessionEvent(.completed, time: .now)
        event.task = 1
        world.daemon.emit(event, in: world.identifier)
        try await client.acknowledge(Acknowledgement(sequence: 1), in: world.identifier)
        other.close()
        try await poll { session.connectionError == nil }
        #expect(await session.allTasks.isEmpty)
        try await world.end(session)
        #expect(world.recorder.lines == ["invalid: well"])
    }

    @Test func theEndOfATaskThatCouldNotBeAskedForComesAgain() async throws {
        let world = try World()
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

    @Test func aSessionThatAnotherProcessHasIsWaitedFor() async throws {
        let world = try World()
        let client = ControlClient(path: world.daemon.path)
        try await client.makeSession(world.identifier, configuration: SessionConfiguration())
        let other = try await client.events(of: world.identifier)
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        #expect(task.taskIdentifier == 1, "tasks can be made all the same")
        try await poll {
            session.connectionError?.code == .backgroundSessionInUseByAnotherProcess
        }
        other.close()
        try await poll { session.connectionError == nil }
        try await world.end(session)
    }

    @Test func aTaskThatNoDaemonWasToldOfFailsInTime() async throws {
        let world = try World()
        world.daemon.stop()
        let configuration = world.configuration
        configuration.timeoutIntervalForService = 0.01
        let session = URLSession(
            configuration: configuration,
            delegate: world.recorder,
            delegateQueue: nil
        )
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        #expect(try await world.lines(2).last == "completed -1: -997")
        #expect(task.error?.localizedDescription == "no daemon listens at '\(world.daemon.path)'")
        session.finishTasksAndInvalidate()
        #expect(try await world.lines(3).last == "invalid: well")
    }

    @Test func aReaderTakesInWhatItHasRead() async throws {
        let world = try World()
        let session = URLSession(configuration: world.configuration)
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        world.emit(.changed, task) { $0.holds = [Hold(.offline)] }
        world.emit(.progress, task) { $0.bytesReceived = ByteCount(5) }
        world.emit(.completed, task) { $0.location = "/staged/1" }
        var seen: [String] = []
        for await event in session.events {
            switch event {
            case .waiting(_, let holds): seen.append("waiting \(holds.map(\.reason))")
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
                "waiting [StageControl.HoldReason.offline]", "5 of -1", "/staged/1", "completed 0",
            ]
        )
        #expect(world.daemon.session(world.identifier)?.acknowledgedEvent == 1)
        world.daemon.stop()
    }
}

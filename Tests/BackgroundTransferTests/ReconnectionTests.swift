import BackgroundTransfer
import Foundation
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// A session whose daemon is stopped and started again.
@Suite(.directory, .daemon, .server)
struct ReconnectionTests {
    @Test func aDaemonThatIsStartedLaterReceivesEverything() async throws {
        let world = try await World(starts: false)
        let session = world.session()
        let tasks = session.downloadTasks(with: [
            URLRequest(url: try world.url("/late")), URLRequest(url: try world.url("/late")),
            URLRequest(url: try world.url("/late")),
        ])
        let identifiers = tasks.map(\.taskIdentifier)
        #expect(Set(identifiers).count == 3 && identifiers == identifiers.sorted())
        tasks[0].taskDescription = "first"
        tasks[0].resume()
        tasks[2].resume()
        tasks[2].cancel()
        await session.flush()
        // The threads for requests and for events fail independently of each other, and the first failure ends the flush.
        try await poll { await session.allTasks.count == 2 }
        try await poll { session.connectionError?.code == .backgroundSessionWasDisconnected }
        try await world.daemon.start()
        try await world.attach()
        try await poll { tasks.map(\.isStored) == [true, true, false] }
        let known = try await world.tasks()
        #expect(known.count == 2)
        #expect(known.filter { $0.state == .suspended }.count == 1)
        #expect(known.contains { $0.request.description == "first" && $0.state != .suspended })
        #expect(tasks.map(\.taskIdentifier) == identifiers, "an identifier is for good")
        #expect(tasks[2].state == .completed)
        try await world.end(session)
    }

    @Test func aDescriptionThatIsTooLongDoesNotFailANewTask() async throws {
        let world = try await World(starts: false)
        let session = world.session()
        let url = try world.url("/late")
        let tasks = session.downloadTasks(with: [URLRequest(url: url), URLRequest(url: url)])
        // Without a daemon, the description is part of the request that creates the task.
        tasks[0].taskDescription = String(repeating: "d", count: 4097)
        tasks[0].countOfBytesClientExpectsToReceive = 1 << 51
        tasks[1].taskDescription = "second"
        for task in tasks { task.resume() }
        try await world.daemon.start()
        try await world.attach()
        try await poll { tasks.allSatisfy { $0.isStored || $0.state == .completed } }
        #expect(tasks.allSatisfy { $0.state == .running && $0.error == nil })
        let known = try await world.tasks()
        #expect(known.map(\.request.description) == [nil, "second"])
        #expect(known.map(\.request.expectedToReceive) == [nil, nil])
        try await world.end(session)
    }

    @Test func aLostChangeIsMadeUpFor() async throws {
        let world = try await World()
        let session = world.session()
        try await world.attach()
        let task = session.downloadTask(with: try world.url("/late"))
        await session.flush()
        try await world.daemon.kill()
        task.resume()
        task.priority = URLSessionTask.highPriority
        try await world.daemon.start()
        try await poll { try await world.tasks().first?.state != .suspended }
        try await poll { try await world.tasks().first?.request.priority == 0.75 }
        try await world.end(session)
    }

    @Test func aDownloadOutlivesTheDaemonAndIsReportedOnce() async throws {
        let world = try await World()
        let answer = Answer.content([UInt8](repeating: 7, count: 300_000))
        world.server.answer("/stalls", with: answer.stalled(after: 100_000))
        let session = world.session()
        try await world.attach()
        let task = session.downloadTask(with: try world.url("/stalls"))
        task.resume()
        try await poll { task.countOfBytesReceived > 0 }
        try await world.daemon.kill()
        world.server.answer("/stalls", with: answer)
        try await poll { session.connectionError != nil }
        try await world.daemon.start()
        try await poll { task.state == .completed }
        try await world.acknowledged(1)
        let lines = world.lines.filter { !$0.hasPrefix("resumed") }
        #expect(
            lines == [
                "created 1", "finished 1: /staged/1", "metrics 1: 0", "completed 1: well",
            ]
        )
        try await world.end(session)
    }

    @Test func aLaterProcessReceivesTheTasksAndUnacknowledgedEvents() async throws {
        let world = try await World()
        let client = world.daemon.client
        var rules = SessionConfiguration()
        rules.sendsLaunchEvents = false
        try await client.makeSession(world.identifier, configuration: rules)
        let url = world.server.url("/file")
        let request = TransferRequest(token: "t", kind: .download, url: url)
        var other = TransferRequest(token: "u", kind: .download, url: world.server.url("/late"))
        other.isSuspended = true
        let ids = try await client.createTasks([request, other, request], in: world.identifier)
        #expect(ids == [1, 2, 1])
        try await poll { try await client.task(1).state == .completed }
        let session = world.session()
        let (data, uploads, downloads) = await session.tasks
        #expect(data.isEmpty && uploads.isEmpty)
        #expect(downloads.contains { $0.taskIdentifier == 2 })
        #expect(
            try await world.lines(4) == [
                "finished 1: /staged/1", "metrics 1: 0", "completed 1: well", "finished events",
            ]
        )
        try await world.acknowledged(1)
        #expect(await session.allTasks.map(\.taskIdentifier) == [2])
        try await world.end(session)
    }

    @Test func aDaemonThatLostItsRecordsGetsTheSessionAgain() async throws {
        let world = try await World()
        let session = world.session()
        try await world.attach()
        session.downloadTask(with: try world.url()).resume()
        try await world.acknowledged(1)
        let old = session.downloadTask(with: try world.url("/late"))
        old.resume()
        await session.flush()
        try await world.daemon.kill()
        try FileManager.default.removeItem(atPath: world.daemon.state.string)
        try await world.daemon.start()
        try await poll { old.state == .completed }
        #expect((old.error as? URLError)?.code == .backgroundSessionWasDisconnected)
        let new = session.downloadTask(with: try world.url())
        new.resume()
        try await poll { new.state == .completed }
        #expect(new.error == nil)
        try await world.acknowledged(1)
        try await world.end(session)
    }

    @Test func anEventThatAnotherProcessAcknowledgedIsNotDelivered() async throws {
        let world = try await World()
        let client = world.daemon.client
        try await client.makeSession(world.identifier, configuration: SessionConfiguration())
        let request = TransferRequest(token: "t", kind: .download, url: world.server.url("/late"))
        _ = try await client.createTasks([request], in: world.identifier)
        let other = try await client.events(of: world.identifier)
        let session = world.session()
        #expect(await session.allTasks.map(\.taskIdentifier) == [1])
        world.open()
        try await poll { try await client.task(1).state == .completed }
        try await client.acknowledge(Acknowledgement(sequence: 1), in: world.identifier)
        other.close()
        try await poll { session.connectionError == nil }
        #expect(await session.allTasks.isEmpty)
        try await world.end(session)
        #expect(world.recorder.lines == ["invalid: well"])
    }

    @Test func aSessionThatAnotherProcessHasIsWaitedFor() async throws {
        let world = try await World()
        let client = world.daemon.client
        try await client.makeSession(world.identifier, configuration: SessionConfiguration())
        let other = try await client.events(of: world.identifier)
        let session = world.session()
        let task = session.downloadTask(with: try world.url())
        await session.flush()
        #expect(task.daemonTaskNumber == 1, "tasks can be made all the same")
        try await poll {
            session.connectionError?.code == .backgroundSessionInUseByAnotherProcess
        }
        other.close()
        try await poll { session.connectionError == nil }
        try await world.end(session)
    }

    @Test func aTaskThatNoDaemonReceivedFailsInTime() async throws {
        let world = try await World(starts: false)
        let configuration = world.configuration
        configuration.timeoutIntervalForService = 0.01
        let session = URLSession(
            configuration: configuration,
            delegate: world.recorder,
            delegateQueue: nil
        )
        let task = session.downloadTask(with: try world.url())
        task.resume()
        #expect(try await world.lines(2).last == "completed 1: -997")
        #expect(task.error?.localizedDescription == "no daemon listens at '\(world.daemon.socket)'")
        session.finishTasksAndInvalidate()
        #expect(try await world.lines(3).last == "invalid: well")
    }

    @Test func resumeDataIsNotUsedUpBeforeADaemonHasTheDownload() async throws {
        let world = try await World(starts: false)
        let session = world.session()
        let data =
            #"{"request":{"kind":"download","token":"t","url":"http://h/"},"token":"r","version":1}"#
        var returned = Data(data.utf8)
        for _ in 0..<2 {
            let task = session.downloadTask(withResumeData: returned)
            returned = try #require(await task.cancelByProducingResumeData())
            try await poll { task.state == .completed }
            #expect((task.error as? URLError)?.downloadTaskResumeData == returned)
        }
        #expect(String(decoding: returned, as: UTF8.self).contains(#""token":"r""#))
        let task = session.downloadTask(withResumeData: returned)
        task.cancel()
        try await poll { task.state == .completed }
        #expect((task.error as? URLError)?.code == .cancelled)
        #expect((task.error as? URLError)?.downloadTaskResumeData == nil)
        try await world.end(session)
    }

    @Test func aSessionKeepsItsHandlerUnlessItIsGivenAnother() async throws {
        let world = try await World()
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
        try await poll { try await !world.status().isAttached }
        let second = world.session()
        try await world.attach()
        #expect(try await world.status().configuration.handler?.command == handler.command)
        try await world.end(second)
    }

    @Test func anEventIsAcknowledgedOnceItsReaderRequestsTheNext() async throws {
        let world = try await World()
        let session = URLSession(configuration: world.configuration)
        try await world.attach()
        session.downloadTask(with: try world.url()).resume()
        var seen: [String] = []
        for await event in session.events {
            switch event {
            case .finishedDownloading(_, let file): seen.append(file.lastPathComponent)
            case .completed(_, _, let error):
                seen.append("completed \(error?.code.rawValue ?? 0)")
                #expect(try await world.status().acknowledgedEvent == 0)
            case .finishedEvents where !seen.isEmpty: session.finishTasksAndInvalidate()
            default: break
            }
        }
        #expect(seen == ["1", "completed 0"])
        try await world.acknowledged(1)
    }
}

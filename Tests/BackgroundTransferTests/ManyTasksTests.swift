import BackgroundTransfer
import Foundation
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@testable import StageURLSession

/// Tasks by the thousand, and calls that do not wait for a daemon.
@Suite(.directory, .daemon, .server)
struct ManyTasksTests {
    @Test func thousandsOfTasksThatAreResumedOneByOneAreAllStored() async throws {
        let world = try await World()
        let session = world.session()
        let url = try world.url("/late")
        let tasks = (0..<3_000)
            .map { _ in
                let task = session.downloadTask(with: url)
                task.resume()
                return task
            }
        await session.flush()
        #expect(tasks.allSatisfy { $0.isStored && $0.state == .running })
        #expect(Set(tasks.map(\.taskIdentifier)).count == 3_000)
        let known = try await world.tasks()
        #expect(known.map(\.id) == tasks.map(\.daemonTaskNumber))
        #expect(known.allSatisfy { $0.state != .suspended })
        try await world.end(session)
    }

    @Test func tasksThatAreChangedTogetherAreAllChanged() async throws {
        let world = try await World()
        let session = world.session()
        let url = try world.url("/late")
        let tasks = (0..<300).map { _ in session.downloadTask(with: url) }
        await session.flush()
        #expect(try await world.tasks().allSatisfy { $0.state == .suspended })
        for (index, task) in tasks.enumerated() {
            task.taskDescription = "task \(index)"
            task.resume()
        }
        await session.flush()
        let known = try await world.tasks()
        #expect(known.map(\.request.description) == (0..<300).map { "task \($0)" })
        #expect(known.allSatisfy { $0.state != .suspended })
        try await world.end(session)
    }

    @Test func eachOfSeveralChangesIsMadeOrRefusedByItself() async throws {
        let world = try await World()
        let client = world.daemon.client
        for name in [world.identifier, "other"] {
            try await client.makeSession(name, configuration: SessionConfiguration())
        }
        var request = TransferRequest(token: "t", kind: .download, url: world.server.url("/late"))
        request.isSuspended = true
        let own = try await client.createTasks([request], in: world.identifier)
        let foreign = try await client.createTasks([request], in: "other")
        let requests = SessionClient(
            world.identifier,
            configuration: SessionConfiguration(),
            environment: ["STAGEPACK_SOCKET": world.daemon.socket.string]
        )
        var change = TransferChange()
        change.priority = 0.75
        let changes = [own[0], foreign[0], 99].map { TaskChange($0, change: change) }
        let refusals = try requests.changeTasks(changes)
        #expect(refusals.mapValues(\.code) == [foreign[0]: .notFound, 99: .notFound])
        #expect(try await client.task(own[0]).request.priority == 0.75)
        #expect(try await client.task(foreign[0]).request.priority == nil)
        let limit = ControlFormat.taskLimit
        let codes = [[own[0], own[0]], Array(1...Int64(limit + 1))]
            .map { numbers in
                do throws(ControlError) {
                    _ = try requests.changeTasks(numbers.map { TaskChange($0, change: change) })
                    return nil as ControlRefusal.Code?
                } catch {
                    guard case .refused(let refusal) = error else { return nil }
                    return refusal.code
                }
            }
        #expect(codes == [.invalid, .tooLarge])
    }

    @Test func aRefusedChangeDelaysNoOtherAndEndsNoTask() async throws {
        let world = try await World()
        let session = world.session()
        let url = try world.url("/late")
        let tasks = (0..<40).map { _ in session.downloadTask(with: url) }
        await session.flush()
        // The description exceeds the limit of a request.
        tasks[7].taskDescription = String(repeating: "x", count: ControlFormat.bodyLimit)
        for task in tasks { task.resume() }
        await session.flush()
        // The task with the failed change runs, too: only its description is lost.
        #expect(try await world.tasks().allSatisfy { $0.state != .suspended })
        #expect(world.recorder.error(of: tasks[7]) == nil)
        try await world.end(session)
    }

    @Test func aWebSocketTaskOfASessionThatIsRemovedAnswersItsCalls() async throws {
        let world = try await World()
        let session = world.session()
        try await world.attach()
        let task = session.webSocketTask(with: try URL(text: "ws://127.0.0.1:1/"))
        let hasFailed = Flag()
        task.receive { result in if case .failure = result { hasFailed.set() } }
        try await world.daemon.client.removeSession(world.identifier)
        try await poll { hasFailed.isSet }
        try await poll { world.recorder.lines.last == "invalid: well" }
    }

    @Test func noCallWaitsForADaemonThatStandsStill() async throws {
        let world = try await World()
        let session = world.session()
        try await world.attach()
        let process = try #require(world.daemon.process)
        #expect(kill(process, SIGSTOP) == 0)
        let url = try world.url("/late")
        let file = URL(fileURLWithPath: world.daemon.directory.appending("file").string)
        try Data("content".utf8).write(to: file)
        let tasks: [URLSessionTask] = [
            session.downloadTask(with: url), session.downloadTask(with: url),
            session.uploadTask(with: URLRequest(url: url), fromFile: file),
        ]
        for task in tasks { task.resume() }
        tasks[0].priority = URLSessionTask.lowPriority
        tasks[1].suspend()
        #expect(tasks.map(\.isStored) == [false, false, false])
        #expect(kill(process, SIGCONT) == 0)
        try await poll { tasks.allSatisfy(\.isStored) }
        let known = try await world.tasks().sorted { $0.request.token < $1.request.token }
        #expect(known.map { $0.state == .suspended } == [false, true, false])
        #expect(known.map(\.request.priority) == [0.25, nil, nil])
        try await world.end(session)
    }
}

/// The requests that a session sends for its tasks.
@Suite(.directory)
struct TaskRequestTests {
    @Test func tasksAndChangesDuringARequestAreSentInTheNextOne() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        try await world.attach()
        let line = "POST /v1/sessions/\(world.identifier)/tasks"
        func requests() -> Int { world.daemon.requests.count { $0.line == line } }
        world.daemon.hold(line)
        let url = try URL(text: "http://host/file")
        let first = session.downloadTask(with: url)
        try await poll { requests() == 1 }
        first.resume()
        let tasks = (0..<500)
            .map { _ in
                let task = session.downloadTask(with: url)
                task.resume()
                return task
            }
        tasks[0].cancel()
        tasks[1].suspend()
        world.daemon.release()
        try await poll { first.isStored && tasks.dropFirst().allSatisfy(\.isStored) }
        #expect(requests() == 2)
        #expect(world.daemon.tasks.count == 500)
        #expect(world.daemon.tasks.count { $0.state == .suspended } == 1)
        #expect(first.isStored && world.daemon.tasks.first?.state == .waiting)
        #expect(tasks[0].daemonTaskNumber == nil)
        try await world.end(session)
    }

    @Test func anEventIsAcknowledgedAfterTheTasksThatItsDelegateCreated() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        try await world.attach()
        let url = try URL(text: "http://host/file")
        let tasks = [session.downloadTask(with: url), session.downloadTask(with: url)]
        await session.flush()
        let line = "POST /v1/sessions/\(world.identifier)/tasks"
        func requests() -> Int { world.daemon.requests.count { $0.line == line } }
        // The first tasks were created by one request or by two.
        let before = requests()
        world.daemon.hold(line)
        world.recorder.state.withLock {
            $0.block = { session.downloadTask(with: url).resume() }
        }
        world.emit(.completed, tasks[0]) { $0.location = "/staged/1" }
        try await poll { requests() > before }
        world.emit(.progress, tasks[1]) { $0.bytesReceived = ByteCount(5) }
        try await poll { world.recorder.lines.contains { $0.hasPrefix("wrote") } }
        #expect(world.recorder.lines.contains("completed 1: well"))
        #expect(!world.daemon.requests.contains { $0.line.hasSuffix("/acknowledge") })
        world.daemon.release()
        try await world.acknowledged(1)
        try await world.end(session)
    }

    @Test func deliveredEventsAreAcknowledgedBeforeTheSessionEnds() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        try await world.attach()
        let url = try URL(text: "http://host/file")
        let tasks = [session.downloadTask(with: url), session.downloadTask(with: url)]
        await session.flush()
        let line = "PATCH /v1/tasks/2"
        world.daemon.hold(line)
        world.recorder.state.withLock { $0.block = { tasks[1].cancel() } }
        session.finishTasksAndInvalidate()
        world.emit(.completed, tasks[0]) { $0.location = "/staged/1" }
        try await poll { world.daemon.requests.contains { $0.line == line } }
        world.emit(.failed, tasks[1]) { $0.failure = TransferFailure(.lost, reason: "gone") }
        try await poll("found \(world.recorder.lines)") {
            world.recorder.lines.contains { $0.hasPrefix("completed 2") }
        }
        world.daemon.release()
        try await poll("found \(world.recorder.lines)") {
            world.recorder.lines.last == "invalid: well"
        }
        #expect(world.daemon.session(world.identifier)?.acknowledgedEvent == 2)
        world.daemon.stop()
    }

    @Test func aTaskWithoutADaemonEndsAfterItsTime() async throws {
        let directory = try TemporaryDirectory.required()
        let configuration = URLSessionConfiguration.background(withIdentifier: "expiring")
        configuration.serviceSocketPath = directory.path.appending("none").string
        configuration.timeoutIntervalForResource = 1000
        let session = URLSession(configuration: configuration)
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        // The system's clock may jump, so the age is measured by a monotonic clock.
        session.expireTasks(now: .now + .seconds(900))
        #expect(task.state == .running)
        session.expireTasks(now: .now + .seconds(1001))
        try await poll { task.state == .completed }
        #expect((task.error as? URLError)?.code == .timedOut)
        session.invalidateAndCancel()
    }

    @Test func aTaskThatIsCancelledWhileItIsRefusedEnds() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        try await world.attach()
        let line = "POST /v1/sessions/\(world.identifier)/tasks"
        world.daemon.refuse(line, with: ControlRefusal(.invalid, message: "no"))
        world.daemon.hold(line)
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        try await poll { world.daemon.requests.contains { $0.line == line } }
        task.cancel()
        world.daemon.release()
        try await poll { task.state == .completed }
        // The delegate is called after the state has changed.
        try await poll { world.recorder.error(of: task) != nil }
        #expect(world.recorder.error(of: task)??.code == .cancelled)
        try await world.end(session)
    }

    @Test func anUploadThatTheDaemonRefusesForNowDelaysNoOtherTask() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        try await world.attach()
        let url = try URL(text: "http://host/file")
        let file = FilePath(world.daemon.path).removingLastComponent().appending("content")
        try Data("content".utf8).write(to: URL(fileURLWithPath: file.string))
        let line = "POST /v1/sessions/\(world.identifier)/tasks"
        world.daemon.refuse(
            line,
            with: ControlRefusal(.unavailable, message: "no more descriptors")
        )
        let upload = session.uploadTask(
            with: URLRequest(url: url),
            fromFile: URL(fileURLWithPath: file.string)
        )
        try await poll { world.daemon.requests.contains { $0.line == line } }
        world.daemon.refuse(line, with: nil)
        let attachments = world.daemon.requests.count { $0.line.contains("/events?") }
        let download = session.downloadTask(with: url)
        download.resume()
        upload.resume()
        try await poll { download.isStored && upload.isStored }
        #expect(world.daemon.requests.count { $0.line.contains("/events?") } == attachments)
        try await world.end(session)
    }

    @Test func aChallengeIsAcknowledgedAfterItsAnswer() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        try await world.attach()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        await session.flush()
        let line = "PATCH /v1/tasks/\(try #require(task.daemonTaskNumber))"
        world.daemon.hold(line)
        world.emit(.challenged, task) { $0.challenge = "Basic realm=\"r\"" }
        try await poll { world.recorder.state.withLock { $0.challengeAnswer } != nil }
        world.recorder.state.withLock { $0.challengeAnswer }?()
        try await poll { world.daemon.requests.contains { $0.line == line } }
        let other = session.downloadTask(with: try URL(text: "http://host/other"))
        try await poll { other.taskIdentifier > 0 }
        #expect(!world.daemon.requests.contains { $0.line.hasSuffix("/acknowledge") })
        world.daemon.release()
        try await world.acknowledged(1)
        try await world.end(session)
    }

    @Test func anAnswerTakesNothingBackThatAnEventHasSaid() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        try await world.attach()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        await session.flush()
        let line = "PATCH /v1/tasks/\(try #require(task.daemonTaskNumber))"
        world.daemon.holdAnswers(to: line)
        task.priority = URLSessionTask.highPriority
        try await poll { world.daemon.requests.contains { $0.line == line } }
        world.emit(.progress, task) { $0.bytesReceived = ByteCount(5) }
        try await poll { task.countOfBytesReceived == 5 }
        world.daemon.release()
        try await poll { task.isStored }
        #expect(task.countOfBytesReceived == 5)
        try await world.end(session)
    }

    @Test func anAnswerThatComesTooLateLosesNoOtherChange() async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        try await world.attach()
        world.recorder.state.withLock {
            $0.credential = URLCredential(user: "u", password: "p", persistence: .none)
        }
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        await session.flush()
        let id = try #require(task.daemonTaskNumber)
        let line = "PATCH /v1/tasks/\(id)"
        world.emit(.challenged, task) { $0.challenge = "Basic realm=\"r\"" }
        _ = try await world.lines(2)
        try await poll { world.recorder.state.withLock { $0.challengeAnswer } != nil }
        world.daemon.hold(line)
        task.priority = URLSessionTask.highPriority
        try await poll { world.daemon.requests.contains { $0.line == line } }
        // Both changes are in the next request, before which the daemon sends no further challenge.
        world.recorder.state.withLock { $0.challengeAnswer }?()
        task.taskDescription = "described"
        let client = try await ControlClient.discover(
            environment: ["STAGEPACK_SOCKET": world.daemon.path]
        )
        try await client.acknowledge(Acknowledgement(sequence: 1), in: world.identifier)
        world.daemon.release()
        try await poll { task.isStored }
        let known = try #require(world.daemon.tasks.first)
        #expect(known.request.description == "described" && known.request.priority == 0.75)
        #expect(task.isStored && task.state == .running)
        try await world.end(session)
    }

    @Test func aTokenCarriesTheIdentifierOfItsTask() {
        let (first, second) = (TaskIdentity(at: .now), TaskIdentity(at: .distantPast))
        #expect(first.number > 0 && second.number > first.number)
        #expect(TaskIdentity(token: first.newToken) == first)
        #expect(first.newToken != first.newToken)
        for token in ["t", "", "urlsession-", "urlsession-0-a", "urlsession--1-a", "x-1-a"] {
            #expect(TaskIdentity(token: token) == nil, "\(token)")
        }
    }
}

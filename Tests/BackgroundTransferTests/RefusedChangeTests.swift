import BackgroundTransfer
import Foundation
import StageControl
import StageModel
import StageTesting
import Testing

/// Tasks that the daemon continues although it refused changes of them.
@Suite(.directory)
struct RefusedChangeTests {
    private static let codes = [ControlRefusal.Code.storage, .quota]

    private func refusal(_ code: ControlRefusal.Code) -> ControlRefusal {
        ControlRefusal(code, message: "there is no space")
    }

    @Test(arguments: codes)
    func aChangeThatHasNoSpaceIsSentAgain(_ code: ControlRefusal.Code) async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        try await world.attach()
        let task = session.downloadTask(with: try URL(text: "http://host/1"))
        await session.flush()
        let line = "PATCH /v1/tasks/1"
        world.daemon.refuse(line, with: refusal(code))
        task.resume()
        try await poll { world.daemon.requests.count { $0.line == line } >= 2 }
        #expect(task.state == .running && task.error == nil && !task.isStored)
        let attachments = world.daemon.requests.count { $0.line.contains("/events?") }
        // Other changes are sent meanwhile, over the same connection.
        let other = session.downloadTask(with: try URL(text: "http://host/2"))
        try await poll { other.isStored }
        #expect(world.daemon.requests.count { $0.line.contains("/events?") } == attachments)
        world.daemon.refuse(line, with: nil)
        try await poll { task.isStored }
        #expect(world.daemon.tasks.first?.state == .waiting)
        world.emit(.completed, task) { $0.location = "/staged/1" }
        #expect(
            try await world.lines(4) == [
                "created 1", "created 2", "finished 1: /staged/1", "completed 1: well",
            ]
        )
        try await world.end(session)
    }

    @Test(arguments: [true, false])
    func ofSeveralChangesThoseThatHaveNoSpaceAreSentAgain(isWhole: Bool) async throws {
        let world = try ScriptedWorld()
        let session = world.session()
        try await world.attach()
        let url = try URL(text: "http://host/file")
        let tasks = session.downloadTasks(with: (0..<20).map { _ in URLRequest(url: url) })
        await session.flush()
        let all = "PATCH /v1/sessions/\(world.identifier)/tasks"
        let line = isWhole ? all : "PATCH /v1/tasks/7"
        world.daemon.refuse(line, with: refusal(.storage))
        // Changes are collected while the first request waits for its response, and are sent together.
        world.daemon.hold("PATCH")
        for task in tasks { task.resume() }
        world.daemon.release()
        try await poll { world.daemon.requests.count { $0.line == all } >= (isWhole ? 2 : 1) }
        if !isWhole { try await poll { tasks.count(where: \.isStored) == 19 } }
        #expect(tasks.allSatisfy { $0.state == .running && $0.error == nil })
        world.daemon.refuse(line, with: nil)
        try await poll { tasks.allSatisfy(\.isStored) }
        #expect(world.daemon.tasks.allSatisfy { $0.state == .waiting })
        #expect(world.recorder.lines.allSatisfy { $0.hasPrefix("created") })
        try await world.end(session)
    }

    @Test func resumeDataIsNotAwaitedFromATaskThatAnotherProcessHasEnded() async throws {
        let world = try ScriptedWorld()
        let client = ControlClient(path: world.daemon.path)
        _ = try client.answer(
            to: .makeSession(world.identifier, configuration: SessionConfiguration())
        )
        let request = TransferRequest(token: "t", kind: .download, url: "http://host/file")
        _ = try await client.createTasks([request], in: world.identifier)
        let events = "GET /v1/sessions/\(world.identifier)/events"
        world.daemon.refuse(
            events,
            with: ControlRefusal(.conflict, message: "another client is attached")
        )
        world.daemon.hold("PATCH")
        let session = world.session()
        let task = try #require(await session.allTasks.first as? URLSessionDownloadTask)
        async let data = task.cancelByProducingResumeData()
        try await poll { world.daemon.requests.contains { $0.line.hasPrefix("PATCH") } }
        world.daemon.forget(1)
        #expect(await data == nil)
        #expect(task.state == .completed && task.error == nil)
        world.daemon.refuse(events, with: nil)
        world.daemon.release()
        try await world.end(session)
    }
}

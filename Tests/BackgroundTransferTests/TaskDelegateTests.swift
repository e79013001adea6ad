import BackgroundTransfer
import Foundation
import StageTesting
import StageWebSocket
import Testing

/// Delegates of single tasks, and the report of a task's creation.
@Suite(.server, .directory, .timeLimit(.minutes(5)))
struct TaskDelegateTests: ForegroundSuite {
    /// A queue that makes no calls.
    private func suspendedQueue() -> OperationQueue {
        let queue = OperationQueue()
        queue.isSuspended = true
        return queue
    }

    @Test func aTaskIsReportedBeforeItIsReturned() async throws {
        let recorder = Recorder()
        let session = URLSession(
            configuration: .ephemeral,
            delegate: recorder,
            delegateQueue: suspendedQueue()
        )
        let location = try url("/a")
        _ = session.dataTask(with: location)
        #expect(recorder.lines == ["created 1"])
        _ = session.downloadTask(with: location) { _, _, _ in }
        #expect(recorder.lines.last == "created 2")
        _ = session.webSocketTask(with: location)
        #expect(recorder.lines.last == "created 3")
    }

    @Test func aBackgroundTaskIsReportedBeforeItIsReturned() async throws {
        let world = try ScriptedWorld()
        let queue = suspendedQueue()
        let session = URLSession(
            configuration: world.configuration,
            delegate: world.recorder,
            delegateQueue: queue
        )
        _ = session.downloadTasks(with: [
            URLRequest(url: try url("/a")), URLRequest(url: try url("/b")),
        ])
        #expect(world.recorder.lines == ["created 1", "created 2"])
        queue.isSuspended = false
        try await world.end(session)
    }

    @Test func theDelegateOfACallReceivesItsTask() async throws {
        server.answer("/a", with: .content([1]))
        let (own, other) = (Recorder(), Recorder())
        let session = session(other)
        _ = try await session.data(from: url("/a"), delegate: own)
        _ = try await session.upload(for: request("/a", "PUT"), from: Data([1]), delegate: own)
        let (file, _) = try await session.download(from: url("/a"), delegate: own)
        try FileManager.default.removeItem(at: file)
        let (bytes, _) = try await session.bytes(from: url("/a"), delegate: own)
        for try await _ in bytes {}
        let creations = own.lines.filter { $0.hasPrefix("created") }
        #expect(creations == (1...4).map { "created \($0)" })
        #expect(other.lines.isEmpty)
    }

    @Test func theDelegateOfAWebSocketTaskReceivesItsConnection() async throws {
        let url = try serve { peer in
            _ = peer.next()
            peer.close(1001)
            peer.waitForEnd()
        }
        try await withSession { session, recorder in
            let task = session.webSocketTask(with: url)
            weak var held: SocketRecorder?
            do {
                let own = SocketRecorder()
                held = own
                task.delegate = own
                task.resume()
                try await task.send(.string("end"))
                try await own.wait(for: "completed 0: well")
                #expect(own.lines == ["opened 0: -", "closed 0: 1001 -", "completed 0: well"])
            }
            #expect(recorder.lines == ["created 1"])
            try await poll { held == nil && task.delegate == nil }
        }
    }
}

import BackgroundTransfer
import Foundation
import FoundationNetworking
import StageTesting
import Testing

/// Queues and progress objects of the application that a session in this process uses.
@Suite(.server, .timeLimit(.minutes(5)))
struct ForegroundObjectTests: ForegroundSuite {
    @Test func operationsThatTheApplicationCancelsLoseNoCall() async throws {
        server.answer("/a", with: .content([1, 2, 3]))
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = 1
        queue.isSuspended = true
        let recorder = DataRecorder()
        let session = URLSession(
            configuration: .ephemeral,
            delegate: recorder,
            delegateQueue: queue
        )
        session.dataTask(with: try url("/a")).resume()
        try await poll { queue.operationCount == 1 }
        queue.cancelAllOperations()
        queue.isSuspended = false
        try await poll("found \(recorder.lines)") { recorder.lines.last == "completed: -" }
        #expect(recorder.lines == ["response 200, 3", "data", "metrics 1", "completed: -"])
    }

    @Test func tasksOfSeveralSessionsHaveOneProgress() async throws {
        server.answer("/a", with: .content(data(400_000)))
        for _ in 0..<4 {
            let sessions = (0..<4).map { _ in
                session { $0.httpMaximumConnectionsPerHost = 16 }
            }
            let parent = Progress(totalUnitCount: 64)
            let tasks = try (0..<64).map { sessions[$0 % 4].dataTask(with: try url("/a")) }
            for task in tasks { parent.addChild(task.progress, withPendingUnitCount: 1) }
            for task in tasks { task.resume() }
            try await poll { tasks.allSatisfy { $0.state == .completed } }
            #expect(tasks.allSatisfy { $0.error == nil && $0.progress.fractionCompleted == 1 })
            #expect(parent.completedUnitCount == 64 && parent.fractionCompleted == 1)
            for session in sessions { session.finishTasksAndInvalidate() }
        }
    }
}

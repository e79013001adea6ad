import BackgroundTransfer
import Foundation
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Tasks that a process creates and never resumes.
@Suite(.directory, .daemon, .server)
struct UnresumedTaskTests {
    @Test func aTaskThatWasNeverResumedOutlivesItsProcessWithAllThatWasSet() async throws {
        let world = try await World()
        let (socket, name) = (world.daemon.socket.string, world.identifier)
        let url = world.server.url("/file")
        // A process that ends waits for the daemon for three seconds, which may be too short on a busy machine.
        for _ in 0..<10 {
            let exit = await #expect(processExitsWith: .success) {
                [socket = socket as String, name = name as String, url = url as String] in
                let configuration = URLSessionConfiguration.background(withIdentifier: name)
                configuration.serviceSocketPath = socket
                let session = URLSession(configuration: configuration)
                var request = URLRequest(url: try URL(text: url))
                request.setValue("7", forHTTPHeaderField: "X-Item")
                let task = session.downloadTask(with: request)
                task.taskDescription = "target"
                task.priority = URLSessionTask.highPriority
                task.earliestBeginDate = Date(timeIntervalSince1970: 4_000_000_000)
                task.countOfBytesClientExpectsToReceive = 7_000
                task.countOfBytesClientExpectsToSend = 200
            }
            #expect(exit != nil)
            // The value that the process sets last.
            let stored = try? await world.tasks().first?.request.expectedToSend
            if stored != nil { break }
            // Without a session, there is nothing to remove.
            try? await world.daemon.client.removeSession(name)
        }
        let session = world.session()
        let task = try #require(await session.allTasks.first)
        #expect(task.state == .suspended)
        #expect(task.originalRequest?.value(forHTTPHeaderField: "X-Item") == "7")
        #expect(task.currentRequest?.url?.absoluteString == url)
        #expect(task.taskDescription == "target")
        #expect(task.priority == URLSessionTask.highPriority)
        #expect(task.earliestBeginDate == Date(timeIntervalSince1970: 4_000_000_000))
        #expect(task.countOfBytesClientExpectsToReceive == 7_000)
        #expect(task.countOfBytesClientExpectsToSend == 200)
        task.earliestBeginDate = nil
        task.taskDescription = nil
        task.resume()
        try await poll { task.state == .completed }
        #expect(task.error == nil && task.taskDescription == nil && task.earliestBeginDate == nil)
        try await world.end(session)
    }
}

import BackgroundTransfer
import Foundation
import StageTesting
import StageWebSocket
import Synchronization
import Testing

/// Sessions in this process, and their WebSocket tasks.
@Suite(.directory, .server) struct WebSocketSessionTests {
    @Test func invalidatingCancelsTheTasks() async throws {
        let ends = Mutex(0)
        let url = try serve { peer in
            peer.waitForEnd()
            ends.withLock { $0 += 1 }
        }
        try await withSession { session, recorder in
            let tasks = (1...3).map { _ in session.webSocketTask(with: url) }
            for task in tasks { task.resume() }
            for number in 1...3 { try await recorder.wait(for: "opened \(number): -") }
            session.invalidateAndCancel()
            try await recorder.wait(for: "invalid: well")
            let last = recorder.lines.suffix(4)
            #expect(Set(last.prefix(3)) == Set((1...3).map { "completed \($0): URL -999" }))
            #expect(last.last == "invalid: well")
            // The delegate is released after its last call.
            try await poll { session.delegate == nil }
            #expect(await session.allTasks.isEmpty)
        }
        try await poll { ends.withLock { $0 } == 3 }
    }

    @Test func aSessionEndsAfterItsConnections() async throws {
        let url = try serve { peer in
            _ = peer.next()
            peer.close(1001)
            peer.waitForEnd()
        }
        try await withSession { session, recorder in
            let task = session.webSocketTask(with: url)
            task.resume()
            try await recorder.wait(for: "opened 1: -")
            session.finishTasksAndInvalidate()
            let late = session.webSocketTask(with: url)
            late.resume()
            try await recorder.wait(for: "completed 2: URL -999")
            #expect(!recorder.lines.contains("invalid: well"))
            try await task.send(.string("end"))
            try await recorder.wait(for: "invalid: well")
            #expect(recorder.lines.suffix(2) == ["completed 1: well", "invalid: well"])
        }
    }

    @Test func aBackgroundSessionRefuses() async throws {
        let identifier = "session-\(UInt64.random(in: .min ... .max))"
        let configuration = URLSessionConfiguration.background(withIdentifier: identifier)
        configuration.serviceSocketPath = "/nonexistent/socket"
        let url = try URL(text: "ws://127.0.0.1:\(TestServer.current.port)/socket")
        try await withSession(configuration) { session, recorder in
            let task = session.webSocketTask(with: url)
            task.taskDescription = "mine"
            task.delegate = recorder
            #expect(task.delegate == nil)
            let (received, receive) = AsyncStream.makeStream(of: String.self)
            task.receive { result in
                if case .failure(let error) = result { receive.yield(name(error)) }
            }
            task.resume()
            #expect(await received.first { _ in true } == "URL -1002")
            try await poll { task.state == .completed }
            #expect(
                task.error?.localizedDescription
                    == "a background session has no WebSocket tasks, since a connection ends with its process: "
                    + "use URLSessionConfiguration.default"
            )
            #expect(recorder.lines.last == "completed 1: URL -1002")
        }
        #expect(TestServer.current.requests.isEmpty)
    }

    @Test(arguments: ["ftp://127.0.0.1/", "socket"])
    func anotherURLIsRefused(text: String) async throws {
        try await withSession { session, recorder in
            let task = session.webSocketTask(with: try URL(text: text))
            task.resume()
            try await recorder.wait(for: "completed 1: URL -1002")
            #expect(
                task.error?.localizedDescription == "expected a ws or wss URL, found '\(text)'"
            )
        }
    }

    @Test func aRequestWithABodyIsRefused() async throws {
        try await withSession { session, recorder in
            let url = try URL(text: "ws://127.0.0.1:\(TestServer.current.port)/socket")
            var request = URLRequest(url: url)
            request.httpBody = Data("a".utf8)
            session.webSocketTask(with: request).resume()
            try await recorder.wait(for: "completed 1: URL -1002")
        }
        #expect(TestServer.current.requests.isEmpty)
    }

    @Test func theSharedSessionIsNotInvalidated() async throws {
        let url = try serve { peer in
            peer.echo()
        }
        let task = URLSession.shared.webSocketTask(with: url)
        task.resume()
        try await task.send(.string("a"))
        URLSession.shared.invalidateAndCancel()
        URLSession.shared.finishTasksAndInvalidate()
        #expect(try await task.receive() == .string("a"))
        let later = URLSession.shared.webSocketTask(with: url)
        later.resume()
        try await later.send(.string("b"))
        for task in [task, later] { task.cancel() }
    }

    @Test func handlersAreCalledOnceForEachKindOfEnd() async throws {
        let url = try serve { peer in
            peer.echo()
        }
        try await withSession { session, recorder in
            for round in 0..<20 {
                let counts = Mutex([Int](repeating: 0, count: 400))
                let note = { @Sendable (call: Int) in counts.withLock { $0[call] += 1 } }
                let task = session.webSocketTask(with: url)
                if round % 5 > 0 { task.resume() }
                await withDiscardingTaskGroup { group in
                    for part in 0..<4 {
                        group.addTask {
                            for call in stride(from: part, to: 400, by: 4) {
                                switch call % 3 {
                                case 0: task.receive { _ in note(call) }
                                case 1: task.sendPing { _ in note(call) }
                                default: task.send(.string("\(call)")) { _ in note(call) }
                                }
                                if call == 50 * (round % 8) {
                                    round.isMultiple(of: 2)
                                        ? task.cancel()
                                        : task.cancel(with: .goingAway, reason: nil)
                                }
                            }
                        }
                    }
                }
                try await poll("\(counts.withLock { $0 })") {
                    counts.withLock { $0.allSatisfy { $0 > 0 } }
                }
                try await poll("found \(recorder.lines)") { task.state == .completed }
                #expect(counts.withLock { $0.allSatisfy { $0 == 1 } })
            }
        }
    }
}

import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.directory)
struct ControlClientTests {
    private func daemon() throws -> TestDaemon {
        let directory = try TemporaryDirectory.required()
        return TestDaemon(path: directory.path.appending("socket").string)
    }

    @Test func tasksAreCreatedReadAndChanged() async throws {
        let daemon = try daemon()
        try daemon.start()
        defer { daemon.stop() }
        let client = ControlClient(path: daemon.path)
        var rules = SessionConfiguration()
        rules.isDiscretionary = true
        let session = try await client.makeSession("s", configuration: rules)
        #expect(session.configuration == rules)
        let request = TransferRequest(token: "t", kind: .download, url: "http://host/file")
        #expect(try await client.createTasks([request], in: "s") == [1])
        #expect(try await client.tasks(in: "s").map(\.request) == [request])
        var change = TransferChange()
        change.state = .suspended
        #expect(try await client.change(1, by: change).state == .suspended)
        try await client.acknowledge(Acknowledgement(sequence: 0), in: "s")
    }

    @Test func aRefusalIsTheDaemonsWords() async throws {
        let daemon = try daemon()
        try daemon.start()
        defer { daemon.stop() }
        let refusal = ControlRefusal(.quota, message: "too many tasks")
        daemon.refuse("GET /v1/sessions", with: refusal)
        await #expect(throws: ControlError.refused(refusal)) {
            _ = try await ControlClient(path: daemon.path).sessions()
        }
        await #expect(throws: ControlError.self) {
            _ = try await ControlClient(path: daemon.path).task(7)
        }
    }

    @Test func aDaemonThatDoesNotAnswerIsLost() async throws {
        let daemon = try daemon()
        try daemon.start()
        defer { daemon.stop() }
        daemon.leaveUnanswered("GET /v1/tasks")
        await #expect(throws: ControlError.lost(daemon.path)) {
            _ = try await ControlClient(path: daemon.path).tasks(all: true)
        }
    }

    @Test func aDaemonThatIsNotThereIsNotRunning() async throws {
        let daemon = try daemon()
        let client = ControlClient(path: daemon.path)
        await #expect(throws: ControlError.notRunning([daemon.path])) {
            _ = try await client.status()
        }
        try daemon.start()
        daemon.stop()
        await #expect(throws: ControlError.notRunning([daemon.path])) {
            _ = try await client.status()
        }
    }

    @Test func aPathThatIsTooLongSaysSo() throws {
        let path = "/tmp/" + String(repeating: "x", count: 103)
        #expect(throws: ControlError.pathTooLong(path)) {
            _ = try ControlClient(path: path).answer(to: .status)
        }
        #expect(throws: ControlError.notRunning([String(path.dropLast())])) {
            _ = try ControlClient(path: String(path.dropLast())).answer(to: .status)
        }
    }

    @Test func theFirstDaemonOfTheCandidatesIsFound() throws {
        let directory = try TemporaryDirectory.required()
        _ = try directory.makeDirectory("stagepack")
        let environment = ["XDG_RUNTIME_DIR": directory.path.string]
        let daemon = TestDaemon(path: ControlSocket.candidates(environment: environment)[0])
        #expect(throws: ControlError.self) {
            _ = try ControlClient.find(environment: ["STAGEPACK_SOCKET": daemon.path])
        }
        try daemon.start()
        defer { daemon.stop() }
        #expect(try ControlClient.find(environment: environment).path == daemon.path)
        #expect(throws: ControlError.notRunning([])) {
            _ = try ControlClient.find(environment: ["STAGEPACK_SOCKET": ""])
        }
    }

    @Test func eventsComeInOrderAndEndWithTheReader() async throws {
        let daemon = try daemon()
        try daemon.start()
        defer { daemon.stop() }
        let client = ControlClient(path: daemon.path)
        try await client.makeSession("s", configuration: SessionConfiguration())
        let first = daemon.emit(SessionEvent(.completed, time: .now), in: "s")
        let second = daemon.emit(SessionEvent(.failed, time: .now), in: "s")
        #expect([first.sequence, second.sequence] == [1, 2])
        var seen: [Int64?] = []
        for try await event in try await client.events(of: "s", after: 1) {
            seen.append(event.sequence)
            if event.kind == .attached {
                await #expect(throws: ControlError.self, "one client at a time") {
                    _ = try await client.events(of: "s")
                }
            }
            if event.kind == .failed { break }
        }
        #expect(seen == [nil, 2])
        try await poll { !daemon.isAttached("s") }
    }

    @Test func cancellingAReaderClosesItsConnection() async throws {
        let daemon = try daemon()
        try daemon.start()
        defer { daemon.stop() }
        let client = ControlClient(path: daemon.path)
        try await client.makeSession("s", configuration: SessionConfiguration())
        try await withThrowingTaskGroup { group in
            group.addTask {
                for try await _ in try await client.events(of: "s") {}
            }
            try await poll { daemon.isAttached("s") }
            group.cancelAll()
            try await group.waitForAll()
        }
        try await poll { !daemon.isAttached("s") }
    }

    @Test func aDaemonThatDiesEndsTheStreamWithAnError() async throws {
        let daemon = try daemon()
        try daemon.start()
        let client = ControlClient(path: daemon.path)
        try await client.makeSession("s", configuration: SessionConfiguration())
        let events = try await client.events(of: "s")
        var iterator = events.makeAsyncIterator()
        let first = try await iterator.next()
        #expect(first?.kind == .attached)
        daemon.stop()
        do {
            let event = try await iterator.next()
            Issue.record("expected an error, found \(String(describing: event))")
        } catch {
            #expect(error == .lost(daemon.path))
        }
    }

    @Test func identifiersAreEncodedInPaths() async throws {
        let daemon = try daemon()
        try daemon.start()
        defer { daemon.stop() }
        let client = ControlClient(path: daemon.path)
        try await client.makeSession("a/b ü?", configuration: SessionConfiguration())
        #expect(daemon.requests.last?.line == "PUT /v1/sessions/a%2Fb%20%C3%BC%3F")
    }
}

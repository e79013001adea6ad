import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Scripted receiver of a connection's events, with a record of its calls.
private final class Receiver: SessionReceiver {
    struct State {
        var lines: [String] = []
        /// Number of durable events that fail before the first one is processed.
        var failures = 0
    }

    let state = Mutex(State())
    private let willAttach: @Sendable () -> Void

    init(failures: Int = 0, willAttach: @escaping @Sendable () -> Void = {}) {
        self.willAttach = willAttach
        state.withLock { $0.failures = failures }
    }

    var lines: [String] { state.withLock { $0.lines } }

    func prepare(_ status: SessionStatus) throws(ControlError) { willAttach() }

    func take(_ event: SessionEvent) throws(ControlError) {
        let mustFail = state.withLock { state in
            guard let sequence = event.sequence else { return false }
            state.lines.append("\(event.kind) \(sequence)")
            guard state.failures > 0 else { return false }
            state.failures -= 1
            return true
        }
        if mustFail { throw .malformed("the test does not take it in") }
    }

    func wasDetached(by problem: ControlError, failures: Int) -> Bool {
        if case .malformed = problem { state.withLock { $0.lines.append("detached") } }
        return true
    }
}

/// The connection that all clients of the daemon share.
@Suite(.directory) struct SessionConnectionTests {
    private let daemon: TestDaemon
    private let client: SessionClient

    init() throws {
        let directory = try TemporaryDirectory.required()
        daemon = TestDaemon(path: directory.path.appending("socket").string)
        client = SessionClient(
            "s",
            configuration: SessionConfiguration(),
            environment: ["STAGEPACK_SOCKET": daemon.path]
        )
    }

    private func complete(_ task: Int64) {
        var event = SessionEvent(.completed, time: .now)
        event.task = task
        daemon.emit(event, in: "s")
    }

    private func end(_ connection: SessionConnection) async {
        await withCheckedContinuation { continuation in
            connection.end { continuation.resume() }
        }
        daemon.stop()
    }

    @Test func anEventThatIsNotTakenInComesAgainAndIsAcknowledgedAfterwards() async throws {
        try daemon.start()
        let receiver = Receiver(failures: 1)
        let connection = SessionConnection(client)
        try connection.start(receiver)
        try await poll { daemon.isAttached("s") }
        complete(1)
        try await poll { receiver.lines.count == 3 }
        #expect(receiver.lines == ["completed 1", "detached", "completed 1"])
        #expect(daemon.session("s")?.acknowledgedEvent == 0)
        connection.finish(1)
        try await poll { daemon.session("s")?.acknowledgedEvent == 1 }
        await end(connection)
    }

    @Test func aConnectionThatIsEndedWhileItAttachesLetsTheSessionGo() async throws {
        try daemon.start()
        let ends = Mutex<(@Sendable () -> Void)?>(nil)
        let connection = SessionConnection(client)
        ends.withLock { $0 = { connection.end() } }
        try connection.start(Receiver { ends.withLock { $0.take() }?() })
        await withCheckedContinuation { continuation in
            connection.whenOver { continuation.resume() }
        }
        try await poll { !daemon.isAttached("s") }
        daemon.stop()
    }

    @Test func finishedEventsAreAcknowledgedBeforeTheConnectionEnds() async throws {
        try daemon.start()
        let receiver = Receiver()
        let connection = SessionConnection(client)
        try connection.start(receiver)
        try await poll { daemon.isAttached("s") }
        complete(1)
        try await poll { receiver.lines == ["completed 1"] }
        connection.finish(1)
        await end(connection)
        #expect(daemon.session("s")?.acknowledgedEvent == 1)
    }

    @Test func anAnswerThatGotLostIsAskedForAgain() throws {
        try daemon.start()
        let request = TransferRequest(token: "t", kind: .download, url: "http://host/file")
        daemon.leaveUnanswered("POST /v1/sessions/s/tasks")
        #expect(try client.createTasks([request]) == [1])
        #expect(daemon.tasks.count == 1)
        var change = TransferChange()
        change.state = .cancelled
        daemon.leaveUnanswered("PATCH /v1/tasks/1")
        #expect(try client.change(1, by: change).state == .cancelled)
        change.state = .suspended
        #expect(throws: ControlError.self) { try client.change(1, by: change) }
        daemon.stop()
    }

    @Test func twoLostAnswersLeaveItOpenWhetherTheRequestArrived() throws {
        try daemon.start()
        let request = TransferRequest(token: "t", kind: .download, url: "http://host/file")
        daemon.leaveUnanswered("POST /v1/sessions/s/tasks", count: 2)
        #expect(throws: ControlError.lost(daemon.path)) { try client.createTasks([request]) }
        #expect(daemon.tasks.count == 1)
        daemon.stop()
    }

    @Test(arguments: [ControlRefusal.Code.storage, .quota, .unavailable])
    func aPassingRefusalAfterALostAnswerLeavesItOpen(_ code: ControlRefusal.Code) throws {
        try daemon.start()
        let refusal = ControlRefusal(code, message: "later")
        let request = TransferRequest(token: "t", kind: .download, url: "http://host/file")
        daemon.leaveUnanswered("POST /v1/sessions/s/tasks", thenRefuseWith: refusal)
        #expect(throws: ControlError.lost(daemon.path)) { try client.createTasks([request]) }
        daemon.leaveUnanswered("PATCH /v1/tasks/1", thenRefuseWith: refusal)
        var change = TransferChange()
        change.state = .suspended
        #expect(throws: ControlError.lost(daemon.path)) { try client.change(1, by: change) }
        daemon.stop()
    }

    @Test func aClosedClientAsksNothing() throws {
        try daemon.start()
        client.close()
        #expect(throws: ControlError.cancelled) { try client.createTasks([]) }
        #expect(daemon.connectionCount == 0)
        daemon.stop()
    }
}

import Foundation
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Records the durable events of a session, and calls a closure of the test before each attachment.
private final class Receiver: SessionReceiver {
    private struct State {
        var lines: [String] = []
        var attempts = 0
    }

    private let state = Mutex(State())
    private let willAttach: @Sendable (Int) -> Void

    init(willAttach: @escaping @Sendable (Int) -> Void = { _ in }) { self.willAttach = willAttach }

    var lines: [String] { state.withLock { $0.lines } }
    var attempts: Int { state.withLock { $0.attempts } }

    func prepare(_ status: SessionStatus) throws(ControlError) {
        let attempt = state.withLock { state in
            state.attempts += 1
            return state.attempts
        }
        willAttach(attempt)
    }

    func take(_ event: SessionEvent) throws(ControlError) {
        guard let sequence = event.sequence else { return }
        state.withLock { $0.lines.append("\(event.kind) \(sequence)") }
    }

    func wasDetached(by problem: ControlError, failures: Int) -> Bool { true }
}

/// The connection that all clients share, with a real daemon that is stopped and started again.
@Suite(.directory, .daemon) struct SessionRestartTests {
    private let daemon: DaemonProcess
    private let relay: Relay
    private let client: SessionClient

    init() throws {
        daemon = try .required()
        try daemon.configure(#"{"settlingTime": 0}"#)
        relay = Relay(
            at: daemon.directory.appending("relay.sock").string,
            to: daemon.socket.string
        )
        client = SessionClient(
            "s",
            configuration: SessionConfiguration(),
            environment: ["STAGEPACK_SOCKET": daemon.socket.string]
        )
    }

    /// Creates a task and cancels it, which is a durable event.
    private func cancelOne(_ token: String) async throws {
        var request = TransferRequest(token: token, kind: .download, url: "http://127.0.0.1:1/")
        request.isSuspended = true
        let ids = try await daemon.client.createTasks([request], in: "s")
        var change = TransferChange()
        change.state = .cancelled
        try await daemon.client.change(ids[0], by: change)
    }

    private func attach() async throws {
        try await poll("nothing is attached") {
            (try? await daemon.client.session("s").isAttached) == true
        }
    }

    /// Blocks until the daemon has noticed that no client is attached; until then, it refuses another stream.
    private static func waitForDetachment(_ client: ControlClient) {
        let deadline = ContinuousClock.now + .seconds(300)
        while ContinuousClock.now < deadline {
            // An error leaves the state open.
            if (try? client.answer(to: .session("s")))?.isAttached == false { return }
            usleep(1000)
        }
    }

    private func end(_ connection: SessionConnection) async {
        await withCheckedContinuation { continuation in
            connection.end { continuation.resume() }
        }
    }

    @Test func aReconnectionThatIsAskedForDuringAnAttemptIsMade() async throws {
        try await daemon.start()
        let connection = SessionConnection(client)
        let isDetached = Mutex(false)
        let control = daemon.client
        let receiver = Receiver { attempt in
            if attempt == 1 { return connection.reconnect() }
            Self.waitForDetachment(control)
            isDetached.withLock { $0 = true }
        }
        try connection.start(receiver)
        try await poll { isDetached.withLock { $0 } }
        try await attach()
        #expect(receiver.attempts == 2)
        await end(connection)
    }

    @Test func aDaemonWithoutRecordsThatComesDuringAnAttemptIsPreparedAgain() async throws {
        try await daemon.start()
        let isAnew = Gate()
        let connection = SessionConnection(client)
        let control = daemon.client
        let receiver = Receiver { attempt in
            // The second attempt is prepared at a daemon that is gone before the stream is opened.
            if attempt == 2 { isAnew.wait() }
            if attempt == 3 { Self.waitForDetachment(control) }
        }
        try connection.start(receiver)
        try await attach()
        try await cancelOne("a")
        try await poll { receiver.lines == ["cancelled 1"] }
        connection.finish(1)
        try await poll { try await daemon.client.session("s").acknowledgedEvent == 1 }
        try await daemon.kill()
        try await daemon.start()
        try await poll { receiver.attempts == 2 }
        try await daemon.kill()
        try FileManager.default.removeItem(atPath: daemon.state.string)
        try await daemon.start()
        try await daemon.client.makeSession("s", configuration: SessionConfiguration())
        try await cancelOne("b")
        isAnew.open()
        try await poll { receiver.lines == ["cancelled 1", "cancelled 1"] }
        connection.finish(1)
        try await poll { try await daemon.client.session("s").acknowledgedEvent == 1 }
        #expect(receiver.attempts == 3)
        await end(connection)
    }

    @Test func theEndOfAStagingWhoseAnswerGotLostIsNotReportedTwice() async throws {
        try await daemon.start()
        try relay.start()
        defer { relay.stop() }
        var configuration = SessionConfiguration()
        configuration.isTransient = true
        let client = SessionClient(
            "s",
            configuration: configuration,
            environment: ["STAGEPACK_SOCKET": relay.path]
        )
        let connection = SessionConnection(client)
        try connection.start(Receiver())
        try await attach()
        var job = StagingJob()
        job.manifests = ["https://127.0.0.1:1/manifest.json"]
        job.container = daemon.directory.appending("container").string
        job.packs = ["aurora"]
        var request = TransferRequest(token: "staging", kind: .staging, url: "manifest")
        request.staging = job
        let ids = try await daemon.client.createTasks([request], in: "s")
        try await poll { try await daemon.client.task(ids[0]).state == .running }
        var change = TransferChange()
        let failure = TransferFailure(.unreachable, reason: "the mirror is away")
        change.stagingEnd = StagingEnd(failure, pendingReason: .backoff)
        relay.loseAnswers(to: "PATCH")
        let task = try client.change(ids[0], by: change)
        #expect(task.pendingReasons.map(\.kind) == [.backoff])
        #expect(task.lastProblem == failure.reason)
        #expect(relay.requests.filter { $0.hasPrefix("PATCH") }.count == 1)
        await end(connection)
    }
}

import Foundation
import FoundationNetworking
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import Testing

@testable import BackgroundAssets

/// The manager with a simulated daemon that responds, or loses messages, as a test requires.
@Suite(.directory) struct ScriptedDaemonTests {
    @Test func eventsAreReportedInOrder() async throws {
        let world = try ScriptedWorld()
        let recorder = Recorder()
        world.manager.delegate = recorder
        let download = try world.download("a")
        try world.manager.schedule(download)
        try await world.attach()
        // A request now would return the end: earlier states are known from events only.
        world.daemon.hold("GET /v1/tasks/1")
        world.emit(.changed) { $0.state = .running }
        world.emit(.progress) { $0.bytesReceived = ByteCount(10) }
        world.emit(.changed) { $0.state = .waiting }
        world.emit(.changed) { $0.state = .running }
        world.emit(.completed) {
            $0.bytesReceived = ByteCount(30)
            $0.location = "/staged/1"
        }
        world.daemon.release()
        try await recorder.lines([
            "begin a", "wrote a: 10, 10 of 30", "pause a", "begin a", "wrote a: 20, 30 of 30",
            "finished a: /staged/1",
        ])
        try await world.acknowledged(1)
        #expect(recorder.downloads.allSatisfy { $0 == download }, "they are equal")
        #expect(recorder.downloads.last?.state == .finished)
        world.daemon.stop()
    }

    @Test func aResumptionThatTheDaemonRepeatsCountsNoByteTwice() async throws {
        let world = try ScriptedWorld()
        let recorder = Recorder()
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a"))
        try await world.attach()
        world.daemon.hold("GET /v1/tasks/1")
        let time = Date(timeIntervalSince1970: 1_800_000_000)
        for count in [10, 20] as [Int64] {
            world.emit(.resumed) { ($0.time, $0.offset) = (time, ByteCount(5)) }
            world.emit(.progress) { $0.bytesReceived = ByteCount(count) }
        }
        world.emit(.completed) {
            $0.bytesReceived = ByteCount(30)
            $0.location = "/staged/1"
        }
        world.daemon.release()
        try await recorder.lines([
            "begin a", "wrote a: 5, 10 of 30", "wrote a: 10, 20 of 30", "wrote a: 10, 30 of 30",
            "finished a: /staged/1",
        ])
        world.daemon.stop()
    }

    @Test(
        arguments: [
            (.storage, .downloadFailedToStart), (.refused, .downloadAlreadyFailed),
            (.unreachable, .downloadAlreadyFailed), (.wrongContent, .downloadAlreadyFailed),
            (.lost, .downloadAlreadyFailed), (.other("eclipse"), .downloadAlreadyFailed),
        ] as [(TransferFailure.Kind, BAErrorCode)]
    )
    func aFailureHasTheCodeThatAnExtensionGets(
        kind: TransferFailure.Kind,
        code: BAErrorCode
    ) async throws {
        let world = try ScriptedWorld()
        let recorder = Recorder()
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a"))
        try await world.attach()
        world.emit(.failed) { $0.failure = TransferFailure(kind, reason: "no") }
        try await recorder.lines(["failed a: \(code.rawValue)"])
        world.daemon.stop()
    }

    @Test func aScheduledDownloadWhosePromotionIsRefusedStaysScheduled() throws {
        let world = try ScriptedWorld()
        let download = try world.download("a")
        try world.manager.schedule(download)
        let refusal = ControlRefusal(.quota, message: "too many")
        world.daemon.refuse("PATCH /v1/tasks/1", with: refusal)
        expect(.downloadWouldExceedAllowance) {
            try world.manager.startForegroundDownload(download)
        }
        #expect(world.daemon.tasks.map(\.state) == [.waiting])
        #expect(world.daemon.tasks.first?.request.isPromoted == nil)
        world.daemon.stop()
    }

    /// A process that is killed between two requests could leave a download that nothing promotes.
    @Test func aForegroundDownloadIsCreatedByOneRequest() throws {
        let world = try ScriptedWorld()
        try world.manager.startForegroundDownload(world.download("a"))
        let task = try #require(world.daemon.tasks.first)
        #expect(task.request.isPromoted == true)
        #expect(task.request.failsWithoutRetry == true)
        #expect(task.request.earliestBegin == nil)
        let changes = world.lines.filter { $0.hasPrefix("POST ") || $0.hasPrefix("PATCH ") }
        #expect(changes == ["POST \(ScriptedWorld.tasks)"])
        world.daemon.stop()
    }

    /// The connections end after the daemon has created the download.
    @Test func aForegroundDownloadWhoseCreationHasNoResponseIsFoundAgain() throws {
        let world = try ScriptedWorld()
        world.daemon.leaveUnanswered("POST", count: 2)
        let download = try world.download("a")
        expect(.callerConnectionInvalid) { try world.manager.startForegroundDownload(download) }
        #expect(world.daemon.tasks.map(\.request.isPromoted) == [true])
        try world.manager.startForegroundDownload(download)
        #expect(world.daemon.tasks.map(\.id) == [1])
        world.daemon.stop()
    }

    /// The daemon decides when a foreground download fails: an event may be older than the promotion.
    @Test(arguments: [PendingReason.Kind.backoff, .server, .offline])
    func aLateEventCancelsNoForegroundDownload(_ reason: PendingReason.Kind) async throws {
        let world = try ScriptedWorld()
        let recorder = Recorder()
        world.manager.delegate = recorder
        try world.manager.startForegroundDownload(world.download("a"))
        try await world.attach()
        // The daemon has begun another attempt before the manager receives the event about the delay.
        world.daemon.modify(1) { task in
            task.state = .running
            task.attempts = 2
            task.lastProblem = "the first attempt has failed"
        }
        world.emit(.changed) {
            $0.state = .waiting
            $0.pendingReasons = [PendingReason(reason)]
        }
        world.emit(.changed) { $0.state = .running }
        try await recorder.lines(["begin a"])
        #expect(world.daemon.tasks.first?.state == .running)
        world.emit(.completed) { $0.location = "/staged/1" }
        try await recorder.lines(["begin a", "finished a: /staged/1"])
        world.daemon.stop()
    }

    @Test func anAnswerThatGotLostIsNotASecondDownload() throws {
        let world = try ScriptedWorld()
        world.daemon.leaveUnanswered("POST")
        try world.manager.schedule(world.download("a"))
        #expect(world.daemon.tasks.count == 1)
        world.daemon.stop()
    }

    @Test func onlyTasksOfTheIdentifierAreListed() throws {
        let world = try ScriptedWorld()
        for identifier in ["a", "b/c"] { try world.manager.schedule(world.download(identifier)) }
        try world.manager.cancel(world.download("a"))
        let line = "GET \(ScriptedWorld.tasks)"
        #expect(
            world.lines.filter { $0.hasPrefix(line) } == [
                "\(line)?token=a", "\(line)?token=b%252Fc", "\(line)?token=a",
            ]
        )
        world.daemon.stop()
    }

    @Test func eventsAreReportedWhileTheDaemonDoesNotRespond() async throws {
        let world = try ScriptedWorld()
        let recorder = Recorder()
        world.manager.delegate = recorder
        let manager = world.manager
        try manager.schedule(world.download("a"))
        try await world.attach()
        let next = try world.download("b")
        world.daemon.hold("GET \(ScriptedWorld.tasks)")
        async let scheduled: Void = withBlockingThread { () throws in try manager.schedule(next) }
        try await poll { world.lines.contains { $0.hasSuffix("token=b") } }
        world.emit(.completed) {
            $0.bytesReceived = ByteCount(30)
            $0.location = "/staged/1"
        }
        try await world.acknowledged(1)
        #expect(recorder.lines.last == "finished a: /staged/1")
        world.daemon.release()
        try await scheduled
        #expect(world.daemon.tasks.map(\.id) == [2])
        world.daemon.stop()
    }

    @Test func aDownloadMayEndBeforeTheResponseThatItWasCreated() async throws {
        let world = try ScriptedWorld()
        let recorder = Recorder()
        world.manager.delegate = recorder
        let manager = world.manager
        try await world.attach()
        let download = try world.download("a")
        world.daemon.holdAnswers(to: "POST \(ScriptedWorld.tasks)")
        async let started: Void = withBlockingThread { () throws in
            try manager.startForegroundDownload(download)
        }
        try await poll { world.daemon.tasks.count == 1 }
        world.emit(.completed) {
            $0.bytesReceived = ByteCount(30)
            $0.location = "/staged/1"
        }
        try await world.acknowledged(1)
        #expect(recorder.lines.last == "finished a: /staged/1")
        world.daemon.release()
        try await started
        world.daemon.stop()
    }

    @Test(arguments: [
        (ControlRefusal.Code.invalid, BAErrorCode.downloadInvalid),
        (.forbidden, .callerConnectionNotAccepted), (.quota, .downloadWouldExceedAllowance),
        (.storage, .downloadFailedToStart), (.unavailable, .downloadFailedToStart),
        (.conflict, .downloadFailedToStart),
    ])
    func aRefusalOfTheDaemonHasItsNumber(
        _ refusal: ControlRefusal.Code,
        code: BAErrorCode
    ) throws {
        let world = try ScriptedWorld()
        world.daemon.refuse("POST", with: ControlRefusal(refusal, message: "no"))
        let download = try world.download("a")
        expect(code) { try world.manager.schedule(download) }
        expect(code) { try world.manager.startForegroundDownload(download) }
        #expect(world.daemon.tasks.isEmpty)
        world.daemon.stop()
    }
}

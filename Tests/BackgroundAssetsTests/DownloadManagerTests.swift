import Foundation
import FoundationNetworking
import StageControl
import StageModel
import StageTesting
import Synchronization
import Testing

@testable import BackgroundAssets

/// The manager in an application, over a daemon that does what a test says.
@Suite(.directory) struct DownloadManagerTests {
    @Test func aScheduledDownloadIsOneOfTheDaemonsDiscretionaryTasks() throws {
        let world = try World()
        try world.manager.schedule(world.download("a", priority: .max))
        #expect(world.daemon.session(World.session)?.configuration.isDiscretionary == true)
        let task = try #require(world.daemon.tasks.first)
        #expect(task.request.url == "https://host/a" && task.request.size == ByteCount(30))
        #expect(task.request.headers == ["X-Name": "x"] && task.request.priority == 1)
        #expect(!world.lines.contains { $0.hasPrefix("PATCH") })
        world.daemon.stop()
    }

    @Test func whatHappensIsToldInOrder() async throws {
        let world = try World()
        let recorder = Recorder()
        world.manager.delegate = recorder
        let download = try world.download("a")
        try world.manager.schedule(download)
        try await world.attach()
        world.emit(.changed) { $0.state = .running }
        world.emit(.progress) { $0.bytesReceived = ByteCount(10) }
        world.emit(.changed) { $0.state = .waiting }
        world.emit(.changed) { $0.state = .running }
        world.emit(.completed) {
            $0.bytesReceived = ByteCount(30)
            $0.location = "/staged/1"
        }
        try await recorder.lines([
            "begin a", "wrote a: 10, 10 of 30", "pause a", "begin a", "wrote a: 20, 30 of 30",
            "finished a: /staged/1",
        ])
        try await world.acknowledged(1)
        #expect(recorder.downloads.allSatisfy { $0 == download }, "they are equal")
        #expect(recorder.downloads.last?.state == .finished)
        world.daemon.stop()
    }

    @Test func aFileIsAcknowledgedAfterTheDelegateHasReturned() async throws {
        let world = try World()
        let acknowledged = Mutex<Int64?>(nil)
        let recorder = Recorder {
            acknowledged.withLock {
                $0 = world.daemon.session(World.session)?.acknowledgedEvent
            }
        }
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a"))
        try await world.attach()
        world.emit(.completed) { $0.location = "/staged/1" }
        try await world.acknowledged(1)
        #expect(acknowledged.withLock { $0 } == 0)
        world.daemon.stop()
    }

    @Test func aForegroundDownloadPromotesTheScheduledOne() throws {
        let world = try World()
        let download = try world.download("a")
        try world.manager.schedule(download)
        try world.other().startForegroundDownload(try world.download("a"))
        #expect(world.daemon.tasks.count == 1)
        let change = try #require(try world.changes().first)
        #expect(change.promotes == true)
        let note = try JSONDecoder()
            .decode(DownloadNote.self, from: Data((change.description ?? "").utf8))
        #expect(note.isForeground && note.uniqueIdentifier == download.uniqueIdentifier)
        try world.manager.startForegroundDownload(try world.download("b"))
        #expect(world.daemon.tasks.count == 2)
        #expect(try world.changes().map(\.promotes) == [true, true])
        world.daemon.stop()
    }

    @Test(arguments: [HoldReason.backoff, .server, .offline])
    func aForegroundDownloadFailsInsteadOfWaiting(_ reason: HoldReason) async throws {
        let world = try World()
        let recorder = Recorder()
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a"))
        try await world.attach()
        world.emit(.changed) {
            $0.state = .waiting
            $0.holds = [Hold(reason)]
        }
        world.emit(.changed) { $0.state = .running }
        try await recorder.lines(["begin a"])
        #expect(world.daemon.tasks.first?.state == .waiting, "nobody waits for it")
        try world.manager.startForegroundDownload(world.download("a"))
        world.emit(.changed) {
            $0.state = .waiting
            $0.holds = [Hold(reason)]
        }
        try await poll { world.daemon.tasks.first?.state == .cancelled }
        world.emit(.cancelled)
        try await recorder.lines(["begin a", "pause a", "failed a: 102"])
        world.daemon.stop()
    }

    @Test func aFailureCanBeScheduledAgainAtOnce() async throws {
        let world = try World()
        let manager = world.manager
        let recorder = Recorder(failed: { try? manager.schedule($0) })
        manager.delegate = recorder
        try manager.schedule(world.download("a"))
        try await world.attach()
        world.emit(.failed) { $0.failure = TransferFailure(.refused, reason: "no", status: 404) }
        try await recorder.lines(["failed a: 102"])
        try await poll { world.daemon.tasks.count == 2 }
        world.daemon.stop()
    }

    @Test func oneIsCancelledInEachState() async throws {
        let world = try World()
        let recorder = Recorder()
        let download = try world.download("a")
        expect(.downloadNotScheduled) { try world.manager.cancel(download) }
        try world.manager.schedule(download)
        try world.manager.cancel(download)
        #expect(world.daemon.tasks.first?.state == .cancelled)
        world.emit(.cancelled)
        expect(.downloadNotScheduled) { try world.manager.cancel(download) }
        try world.manager.schedule(download)
        world.emit(.completed, 2) { $0.location = "/staged/2" }
        expect(.downloadDoesNotExist) { try world.manager.cancel(download) }
        try world.manager.schedule(try world.download("b"))
        world.emit(.failed, 3)
        expect(.downloadAlreadyFailed) { try world.manager.cancel(try world.download("b")) }
        world.manager.delegate = recorder
        // Of the first nobody hears: it was cancelled here.
        try await recorder.lines(["finished a: /staged/2", "failed b: 102"])
        try await world.acknowledged(3)
        world.daemon.stop()
    }

    @Test func whatIsCancelledElsewhereFails() async throws {
        let world = try World()
        let recorder = Recorder()
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a"))
        try await world.attach()
        try world.other().cancel(try world.download("a"))
        world.emit(.cancelled)
        try await recorder.lines(["failed a: -999"])
        world.daemon.stop()
    }

    @Test func anotherProcessHasTheSameDownloads() async throws {
        let world = try World()
        let download = try world.download("a", priority: .max)
        try world.manager.schedule(download)
        try world.manager.schedule(try world.download("b"))
        world.emit(.completed, 2) { $0.location = "/staged/2" }
        let found = try await world.other().currentDownloads
        #expect(found.map(\.identifier) == ["a", "b"])
        #expect(found.map(\.state) == [.waiting, .finished])
        #expect(found.first == download && found.first?.priority == .max)
        #expect(found.first?.wire == download.wire)
        let called = await withCheckedContinuation { continuation in
            world.other().fetchCurrentDownloads { downloads, error in
                continuation.resume(returning: error == nil ? downloads : [])
            }
        }
        #expect(called == found)
        world.daemon.stop()
    }

    @Test func aLaterDelegateHearsWhatWasMissed() async throws {
        let world = try World()
        try world.manager.schedule(world.download("a"))
        world.emit(.completed) { $0.location = "/staged/1" }
        #expect(!world.daemon.isAttached(World.session))
        let other = world.other()
        let recorder = Recorder()
        other.delegate = recorder
        try await recorder.lines(["finished a: /staged/1"])
        try await world.acknowledged(1)
        world.daemon.stop()
    }

    @Test func aDelegateIsNotKeptAliveAndTakesNothingAfterwards() async throws {
        let world = try World()
        var recorder: Recorder? = Recorder()
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a"))
        try await world.attach()
        recorder = nil
        try await poll { world.manager.delegate == nil }
        world.emit(.completed) { $0.location = "/staged/1" }
        try await poll { !world.daemon.isAttached(World.session) }
        #expect(world.daemon.session(World.session)?.acknowledgedEvent == 0)
        let later = Recorder()
        world.manager.delegate = later
        try await later.lines(["finished a: /staged/1"])
        #expect(recorder == nil)
        world.daemon.stop()
    }

    @Test func aChallengeIsAcknowledgedWhenItIsAnswered() async throws {
        let world = try World()
        let recorder = Recorder()
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a"))
        try world.manager.schedule(world.download("b"))
        try await world.attach()
        world.emit(.challenged) { $0.challenge = #"Basic realm="r""# }
        world.emit(.completed, 2) { $0.location = "/staged/2" }
        try await recorder.lines(["challenged a: host r", "finished b: /staged/2"])
        #expect(world.daemon.session(World.session)?.acknowledgedEvent == 0)
        let answer = try #require(recorder.answer)
        answer(.useCredential, URLCredential(user: "u", password: "p", persistence: .none))
        answer(.cancelAuthenticationChallenge, nil)
        try await world.acknowledged(2)
        #expect(try world.changes().map(\.authorization) == ["Basic dTpw"])
        world.daemon.stop()
    }

    @Test func anAnswerThatNoDaemonHeardIsGivenToTheNextOne() async throws {
        let world = try World()
        let recorder = Recorder()
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a"))
        try await world.attach()
        world.emit(.challenged) { $0.challenge = #"Basic realm="r""# }
        try await recorder.lines(["challenged a: host r"])
        let answer = try #require(recorder.answer)
        world.daemon.stop()
        answer(.useCredential, URLCredential(user: "u", password: "p", persistence: .none))
        #expect(try world.changes().isEmpty)
        try world.daemon.start()
        try await world.acknowledged(1)
        #expect(try world.changes().map(\.authorization) == ["Basic dTpw"])
        world.daemon.stop()
    }

    @Test func aDaemonThatComesBackIsAttachedToAgain() async throws {
        let world = try World()
        let recorder = Recorder()
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a"))
        try await world.attach()
        world.daemon.stop()
        world.emit(.completed) { $0.location = "/staged/1" }
        try world.daemon.start()
        try await recorder.lines(["finished a: /staged/1"])
        try await world.acknowledged(1)
        world.daemon.stop()
    }
}

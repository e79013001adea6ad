import Foundation
import FoundationNetworking
import StageControl
import StageModel
import StageTesting
import Synchronization
import Testing

@testable import BackgroundAssets

/// The manager in an application, with the real daemon.
@Suite(.directory, .daemon, .server) struct DownloadManagerTests {
    @Test func aScheduledDownloadIsOneOfTheDaemonsDiscretionaryTasks() async throws {
        let world = try await World()
        try world.manager.schedule(world.download("late", priority: .max))
        #expect(try await world.status().configuration.isDiscretionary)
        let task = try #require(try await world.tasks().first)
        #expect(task.request.url.hasSuffix("/late") && task.request.size == ByteCount(30))
        #expect(task.request.priority == 1)
        try await poll { world.server.requests(for: "/late").first?["x-name"] == "x" }
        world.open()
    }

    @Test func aDownloadIsReportedFromItsStartToItsFile() async throws {
        let world = try await World()
        let recorder = Recorder()
        world.manager.delegate = recorder
        let download = try world.download("late")
        try world.manager.schedule(download)
        try await poll { recorder.lines == ["begin late"] }
        world.open()
        try await recorder.ends(["finished late: /staged/1"], in: world)
        try await world.acknowledged(1)
        #expect(recorder.downloads.allSatisfy { $0 == download }, "they are equal")
        #expect(recorder.downloads.last?.state == .finished)
        #expect(try await world.tasks().isEmpty)
    }

    @Test func aFileIsAcknowledgedAfterTheDelegateHasReturned() async throws {
        let world = try await World()
        let acknowledged = Mutex<Int64?>(nil)
        let client = world.daemon.client
        let recorder = Recorder {
            let status = try? client.answer(to: .session(World.session))
            acknowledged.withLock { $0 = status?.acknowledgedEvent }
        }
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a"))
        try await world.acknowledged(1)
        #expect(acknowledged.withLock { $0 } == 0)
    }

    @Test func aForegroundDownloadPromotesTheScheduledOne() async throws {
        let world = try await World()
        let download = try world.download("late")
        try world.manager.schedule(download)
        try world.other().startForegroundDownload(try world.download("late"))
        let task = try #require(try await world.tasks().first)
        #expect(try await world.tasks().count == 1)
        #expect(task.request.isPromoted == true)
        #expect(task.request.failsWithoutRetry == true)
        #expect(DownloadNote(task).uniqueIdentifier == download.uniqueIdentifier)
        try world.manager.startForegroundDownload(try world.download("b", of: "late"))
        let tasks = try await world.tasks()
        #expect(tasks.map(\.request.isPromoted) == [true, true])
        #expect(tasks.map(\.request.failsWithoutRetry) == [true, true])
        world.open()
    }

    @Test func aForegroundDownloadBeyondTheLimitLeavesNoTask() async throws {
        let world = try await World()
        try await world.daemon.client.makeSession("s", configuration: SessionConfiguration())
        try await world.daemon.downloads(1000, of: world.server.url("/a")) { request in
            request.isSuspended = true
            request.failsWithoutRetry = true
        }
        let download = try world.download("a")
        #expect(throws: BAError.self) { try world.manager.startForegroundDownload(download) }
        #expect(try await world.tasks().isEmpty)
    }

    /// No process has a delegate: the daemon ends the download.
    @Test(arguments: [false, true])
    func aForegroundDownloadFailsWithoutADelegate(restarts: Bool) async throws {
        let world = try await World()
        // Unlike a delay before another attempt, a delay that the server requests does not end when a delegate attaches.
        let busy = Answer.status(503).field("Retry-After", "600")
        let gate = Gate()
        world.server.answer("/busy", with: busy.waiting(for: gate), busy)
        try world.manager.startForegroundDownload(world.download("a", of: "busy"))
        try await poll("no request comes") { !world.server.requests(for: "/busy").isEmpty }
        if restarts {
            try await world.daemon.kill()
            try await world.daemon.start()
        }
        gate.open()
        try await poll("it does not fail") { try await world.tasks().first?.state == .failed }
        let other = world.other()
        let recorder = Recorder()
        other.delegate = recorder
        try await recorder.ends(["failed a: 103"], in: world)
    }

    @Test func aForegroundDownloadFailsInsteadOfBeingTriedAgain() async throws {
        let world = try await World()
        world.server.answer("/busy", with: .status(503))
        let recorder = Recorder()
        world.manager.delegate = recorder
        try world.manager.startForegroundDownload(world.download("a", of: "busy"))
        try await recorder.ends(["failed a: 103"], in: world)
        world.server.answer("/busy", with: .status(503), .content(World.content))
        try world.manager.schedule(world.download("b", of: "busy"))
        try await recorder.ends(["failed a: 103", "finished b: /staged/2"], in: world)
    }

    @Test func aForegroundDownloadDoesNotWaitForADelayOfAnother() async throws {
        let world = try await World()
        world.server.answer("/busy", with: Answer.status(503).field("Retry-After", "600"))
        world.server.answer("/b", with: .content(World.content))
        let recorder = Recorder()
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a", of: "busy"))
        try await poll("no delay begins") {
            try await world.tasks().first?.pendingReasons.map(\.kind) == [.server]
        }
        try world.manager.startForegroundDownload(world.download("b"))
        try await recorder.ends(["finished b: /staged/2"], in: world)
    }

    @Test func aFailureCanBeScheduledAgainAtOnce() async throws {
        let world = try await World()
        world.server.answer("/c", with: .status(404), .content(World.content))
        let manager = world.manager
        let recorder = Recorder(failed: { try? manager.schedule($0) })
        manager.delegate = recorder
        try manager.schedule(world.download("c"))
        try await recorder.ends(["failed c: 103", "finished c: /staged/2"], in: world)
    }

    @Test func aListedDownloadIsScheduledAgainWithItsHeaderFields() async throws {
        let world = try await World()
        world.server.answer("/c", with: .status(404), .content(World.content))
        try world.manager.schedule(world.download("c"))
        try await poll { try await world.tasks().first?.state == .failed }
        let other = world.other()
        let found = try await other.currentDownloads
        try other.schedule(try #require(found.first))
        try await poll { try await world.tasks().last?.state == .completed }
        let heads = world.server.requests(for: "/c")
        #expect(heads.map { $0["x-name"] } == ["x", "x"])
    }

    @Test func aReportedDownloadIsScheduledAgainWithItsHeaderFields() async throws {
        let world = try await World()
        world.server.answer("/c", with: .status(404), .content(World.content))
        let other = world.other()
        let recorder = Recorder(failed: { try? other.schedule($0) })
        other.delegate = recorder
        try await world.attach()
        try world.manager.schedule(world.download("c"))
        try await recorder.ends(["failed c: 103", "finished c: /staged/2"], in: world)
        let heads = world.server.requests(for: "/c")
        #expect(heads.map { $0["x-name"] } == ["x", "x"])
    }

    @Test func aCredentialThatAnsweredAChallengeIsNotScheduledAgain() async throws {
        let world = try await World()
        let recorder = Recorder()
        try await world.challenge(recorder)
        let gate = Gate()
        world.server.answer("/secret", with: .content(World.content).waiting(for: gate))
        let answer = try #require(recorder.answer)
        answer(.useCredential, URLCredential(user: "u", password: "p", persistence: .none))
        try await poll { world.server.requests(for: "/secret").count == 2 }
        let other = world.other()
        let found = try #require(try await other.currentDownloads.first)
        gate.open()
        try await world.acknowledged(2)
        try other.schedule(found)
        try await poll { world.server.requests(for: "/secret").count == 3 }
        let heads = world.server.requests(for: "/secret")
        #expect(heads.map { $0["authorization"] } == [nil, "Basic dTpw", nil])
        #expect(heads.map { $0["x-name"] } == ["x", "x", "x"])
    }

    @Test func downloadsAreCancelledInEachState() async throws {
        let world = try await World()
        let client = world.daemon.client
        let recorder = Recorder()
        let download = try world.download("late")
        expect(.downloadNotScheduled) { try world.manager.cancel(download) }
        try world.manager.schedule(download)
        try world.manager.cancel(download)
        expect(.downloadNotScheduled) { try world.manager.cancel(download) }
        try world.manager.schedule(world.download("a"))
        try await poll { try await client.task(2).state == .completed }
        expect(.downloadDoesNotExist) { try world.manager.cancel(try world.download("a")) }
        try world.manager.schedule(try world.download("missing"))
        try await poll { try await client.task(3).state == .failed }
        expect(.downloadAlreadyFailed) { try world.manager.cancel(try world.download("missing")) }
        world.manager.delegate = recorder
        // The delegate receives no event of the first download: it was cancelled in this process.
        try await recorder.ends(["finished a: /staged/2", "failed missing: 103"], in: world)
        try await world.acknowledged(3)
    }

    @Test func aDownloadIsDistinguishedFromThoseWithSimilarIdentifiers() async throws {
        let world = try await World()
        let long = String(repeating: "l", count: 300)
        let all = ["a", "a/b", "a%2Fb", "a0", "A", "\u{E9}", long, long + "2"]
        for identifier in all {
            try world.manager.schedule(world.download(identifier, of: "late"))
        }
        let other = world.other()
        for identifier in all {
            expect(.downloadAlreadyScheduled) {
                try other.schedule(try world.download(identifier, of: "late"))
            }
        }
        try other.cancel(world.download("a", of: "late"))
        try other.cancel(world.download(long, of: "late"))
        let rest = try await other.currentDownloads.map(\.identifier)
        #expect(rest == ["a/b", "a%2Fb", "a0", "A", "\u{E9}", long + "2"])
        world.open()
    }

    @Test func aDownloadCancelledElsewhereFails() async throws {
        let world = try await World()
        let recorder = Recorder()
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("late"))
        try await world.attach()
        try world.other().cancel(try world.download("late"))
        try await recorder.ends(["failed late: -999"], in: world)
    }

    @Test func anotherProcessHasTheSameDownloads() async throws {
        let world = try await World()
        let download = try world.download("late", priority: .max)
        try world.manager.schedule(download)
        try world.manager.schedule(try world.download("b"))
        try await poll { try await world.tasks().last?.state == .completed }
        let found = try await world.other().currentDownloads
        #expect(found.map(\.identifier) == ["late", "b"])
        #expect(found.last?.state == .finished)
        #expect(found.first == download && found.first?.priority == .max)
        let called = await withCheckedContinuation { continuation in
            world.other().fetchCurrentDownloads { downloads, error in
                continuation.resume(returning: error == nil ? downloads : [])
            }
        }
        #expect(called == found)
        world.open()
    }

    @Test func aLaterDelegateReceivesEarlierEvents() async throws {
        let world = try await World()
        try world.manager.schedule(world.download("a"))
        try await poll { try await world.tasks().first?.state == .completed }
        #expect(try await !world.status().isAttached)
        let other = world.other()
        let recorder = Recorder()
        other.delegate = recorder
        try await recorder.ends(["finished a: /staged/1"], in: world)
        try await world.acknowledged(1)
    }

    @Test func aDelegateIsNotKeptAliveAndTakesNothingAfterwards() async throws {
        let world = try await World()
        var recorder: Recorder? = Recorder()
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("late"))
        try await world.attach()
        recorder = nil
        try await poll { world.manager.delegate == nil }
        world.open()
        try await poll { try await !world.status().isAttached }
        #expect(try await world.status().acknowledgedEvent == 0)
        let later = Recorder()
        world.manager.delegate = later
        try await later.ends(["finished late: /staged/1"], in: world)
        #expect(recorder == nil)
    }

    @Test func theNextDelegateReceivesAnUnansweredChallenge() async throws {
        let world = try await World()
        let (first, second) = (Recorder(), Recorder())
        try await world.challenge(first)
        world.manager.delegate = second
        try await second.ends(["challenged secret: 127.0.0.1 r"], in: world)
        let answer = try #require(second.answer)
        answer(.useCredential, URLCredential(user: "u", password: "p", persistence: .none))
        try await world.acknowledged(2)
        #expect(first.lines.count { $0.hasPrefix("finished") } == 0)
    }

    @Test func aChallengeIsAcknowledgedWhenItIsAnswered() async throws {
        let world = try await World()
        let recorder = Recorder()
        try await world.challenge(recorder)
        try world.manager.schedule(world.download("b"))
        let before = ["challenged secret: 127.0.0.1 r", "finished b: /staged/2"]
        try await recorder.ends(before, in: world)
        #expect(try await world.status().acknowledgedEvent == 0)
        let answer = try #require(recorder.answer)
        answer(.useCredential, URLCredential(user: "u", password: "p", persistence: .none))
        answer(.cancelAuthenticationChallenge, nil)
        try await recorder.ends(before + ["finished secret: /staged/1"], in: world)
        try await world.acknowledged(3)
        let heads = world.server.requests(for: "/secret")
        #expect(heads.map { $0["authorization"] } == [nil, "Basic dTpw"])
    }

    @Test func aDelegateMayReturnItsAnswerToAChallenge() async throws {
        let world = try await World()
        let question = Answer.status(401).field("WWW-Authenticate", #"Basic realm="r""#)
        world.server.answer("/secret", with: question, .content(World.content))
        let delegate = Keyholder()
        world.manager.delegate = delegate
        try world.manager.schedule(world.download("secret"))
        try await world.acknowledged(2)
        let heads = world.server.requests(for: "/secret")
        #expect(heads.map { $0["authorization"] } == [nil, "Basic dTpw"])
        #expect(world.manager.delegate === delegate)
    }

    @Test func anAnswerThatNoDaemonHeardIsGivenToTheNextOne() async throws {
        let world = try await World()
        let recorder = Recorder()
        try await world.challenge(recorder)
        try await world.daemon.kill()
        let answer = try #require(recorder.answer)
        answer(.useCredential, URLCredential(user: "u", password: "p", persistence: .none))
        try await world.daemon.start()
        try await world.acknowledged(2)
        let heads = world.server.requests(for: "/secret")
        #expect(heads.last?["authorization"] == "Basic dTpw")
    }

    @Test func aDaemonThatComesBackIsAttachedToAgain() async throws {
        let world = try await World()
        let recorder = Recorder()
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("late"))
        try await world.attach()
        try await world.daemon.kill()
        world.open()
        try await world.daemon.start()
        try await recorder.ends(["finished late: /staged/1"], in: world)
        try await world.acknowledged(1)
    }
}

/// A delegate that responds to challenges by the method that returns the credential.
private final class Keyholder: NSObject, BADownloadManagerDelegate {
    func download(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge
    ) async -> (URLSession.AuthChallengeDisposition, URLCredential?) {
        (.useCredential, URLCredential(user: "u", password: "p", persistence: .none))
    }
}

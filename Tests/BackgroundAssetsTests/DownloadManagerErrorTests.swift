import Foundation
import FoundationNetworking
import StageControl
import StageTesting
import Testing

@testable import BackgroundAssets

/// What the manager of an application refuses, and by which number.
@Suite(.directory) struct DownloadManagerErrorTests {
    @Test(arguments: [
        ("http://host/a", 30, false, World.group, "a", BAErrorCode.downloadInvalid),
        ("file:///a", 30, false, World.group, "a", .downloadInvalid),
        ("https://host/a", 0, false, World.group, "a", .downloadInvalid),
        ("https://host/a", 30, false, "../a", "a", .downloadInvalid),
        ("https://host/a", 30, false, World.group, "", .downloadInvalid),
        ("https://host/a", 30, true, World.group, "a", .downloadEssentialDownloadNotPermitted),
        ("https://host/a", 30, false, World.group, "known", .downloadAlreadyScheduled),
    ])
    func aRuleThatIsBrokenHasItsNumber(
        _ url: String,
        size: Int,
        isEssential: Bool,
        group: String,
        identifier: String,
        code: BAErrorCode
    ) throws {
        let world = try World()
        try world.manager.schedule(world.download("known"))
        let download = BAURLDownload(
            identifier: identifier,
            request: URLRequest(url: try #require(URL(string: url))),
            essential: isEssential,
            fileSize: size,
            applicationGroupIdentifier: group,
            priority: .default
        )
        expect(code) { try world.manager.schedule(download) }
        if code != .downloadAlreadyScheduled {
            expect(code) { try world.manager.startForegroundDownload(download) }
        }
        #expect(world.daemon.tasks.count == 1)
        world.daemon.stop()
    }

    @Test(arguments: [
        (ControlRefusal.Code.invalid, BAErrorCode.downloadInvalid),
        (.forbidden, .callerConnectionNotAccepted), (.quota, .downloadWouldExceedAllowance),
        (.storage, .downloadFailedToStart), (.unavailable, .downloadFailedToStart),
    ])
    func aRefusalOfTheDaemonHasItsNumber(
        _ refusal: ControlRefusal.Code,
        code: BAErrorCode
    ) throws {
        let world = try World()
        world.daemon.refuse("POST", with: ControlRefusal(refusal, "no"))
        expect(code) { try world.manager.schedule(try world.download("a")) }
        world.daemon.stop()
    }

    @Test func withoutADaemonTheReasonSaysWhatToDo() async throws {
        let world = try World()
        world.daemon.stop()
        let download = try world.download("a")
        expect(.callerConnectionNotAccepted) { try world.manager.schedule(download) }
        expect(.callerConnectionNotAccepted) {
            try world.manager.startForegroundDownload(download)
        }
        expect(.callerConnectionNotAccepted) { try world.manager.cancel(download) }
        let error = await #expect(throws: BAError.self) { try await world.manager.currentDownloads }
        #expect(error?.message.contains("start 'stagepackd'") == true)
    }

    @Test func withoutAGroupNothingIsKnown() async throws {
        let manager = BADownloadManager(environment: [:]) { nil }
        expect(.callerConnectionInvalid) { _ = try manager.fetchCurrentDownloads() }
        manager.withExclusiveControl { isHeld, error in
            #expect(!isHeld)
            #expect((error as? BAError)?.code == .callerConnectionInvalid)
        }
        manager.applicationGroupIdentifier = "../a"
        expect(.downloadInvalid) { _ = try manager.fetchCurrentDownloads() }
    }

    @Test func anAnswerThatGotLostIsNotASecondDownload() throws {
        let world = try World()
        world.daemon.leaveUnanswered("POST")
        try world.manager.schedule(world.download("a"))
        #expect(world.daemon.tasks.count == 1)
        world.daemon.stop()
    }
}

/// Expects an error of this framework.
func expect(
    _ code: BAErrorCode,
    sourceLocation: SourceLocation = #_sourceLocation,
    _ body: () throws -> Void
) {
    do {
        try body()
        Issue.record("it was not refused", sourceLocation: sourceLocation)
    } catch {
        #expect((error as? BAError)?.code == code, "\(error)", sourceLocation: sourceLocation)
    }
}

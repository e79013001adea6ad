import Foundation
import FoundationNetworking
import StageControl
import StageTesting
import Testing

@testable import BackgroundAssets

/// Errors of an application's manager, and their codes.
@Suite(.directory, .daemon, .server) struct DownloadManagerErrorTests {
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
    ) async throws {
        let world = try await World(serves: false)
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
        #expect(try await world.tasks().count == 1)
    }

    @Test func aHiddenHeaderFieldIsNotSent() async throws {
        let world = try await World(serves: false)
        var request = URLRequest(url: try #require(URL(string: "https://host/a")))
        request.setValue("(not shown)", forHTTPHeaderField: "Authorization")
        let download = BAURLDownload(
            identifier: "a",
            request: request,
            fileSize: 30,
            applicationGroupIdentifier: World.group
        )
        expect(.downloadInvalid) { try world.manager.schedule(download) }
        expect(.downloadInvalid) { try world.manager.startForegroundDownload(download) }
        #expect(try await world.daemon.client.tasks() == [])
    }

    @Test func withoutADaemonTheReasonSaysWhatToDo() async throws {
        let world = try await World(serves: false)
        try await world.daemon.kill()
        let download = try world.download("a")
        expect(.callerConnectionInvalid) { try world.manager.schedule(download) }
        expect(.callerConnectionInvalid) {
            try world.manager.startForegroundDownload(download)
        }
        expect(.callerConnectionInvalid) { try world.manager.cancel(download) }
        let error = await #expect(throws: BAError.self) { try await world.manager.currentDownloads }
        #expect(error?.message.contains("start 'stagepackd'") == true)
    }

    @Test func withoutAGroupNothingIsKnown() async throws {
        let manager = BADownloadManager(environment: [:]) { nil }
        expect(.callerConnectionNotAccepted) { _ = try manager.fetchCurrentDownloads() }
        manager.withExclusiveControl { isHeld, error in
            #expect(!isHeld)
            #expect((error as? BAError)?.code == .callerConnectionNotAccepted)
        }
        manager.applicationGroupIdentifier = "../a"
        expect(.downloadInvalid) { _ = try manager.fetchCurrentDownloads() }
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

import Foundation
import FoundationNetworking
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@testable import BackgroundAssets

/// An application and a simulated daemon, for behaviour that the real one cannot be made to show.
struct ScriptedWorld {
    static let group = World.group
    static let session = World.session
    /// The path of requests about the session's tasks.
    static let tasks = "/v1/sessions/backgroundassets%2Fcom.example.aurora/tasks"

    let daemon: TestDaemon
    let manager: BADownloadManager

    init() throws {
        let path = try TemporaryDirectory.required().path.appending("socket").string
        daemon = TestDaemon(path: path)
        try daemon.start()
        manager = .ofApplication(at: path)
    }

    func download(
        _ identifier: String,
        priority: BADownload.Priority = .default
    ) throws -> BAURLDownload {
        var request = URLRequest(url: try #require(URL(string: "https://host/\(identifier)")))
        request.setValue("x", forHTTPHeaderField: "X-Name")
        return BAURLDownload(
            identifier: identifier,
            request: request,
            essential: false,
            fileSize: 30,
            applicationGroupIdentifier: Self.group,
            priority: priority
        )
    }

    func emit(
        _ kind: SessionEvent.Kind,
        _ task: Int64 = 1,
        _ change: (inout SessionEvent) -> Void = { _ in }
    ) {
        var event = SessionEvent(kind, time: .now)
        event.task = task
        change(&event)
        daemon.emit(event, in: Self.session)
    }

    func attach() async throws { try await poll { daemon.isAttached(Self.session) } }

    func acknowledged(_ sequence: Int64) async throws {
        try await poll { daemon.session(Self.session)?.acknowledgedEvent == sequence }
    }

    var lines: [String] { daemon.requests.map(\.line) }
}

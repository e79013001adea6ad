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

/// An application and a daemon that does what a test says.
struct World {
    static let group = "com.example.aurora"
    /// The session as the daemon of tests calls it: by the component of the path.
    static let session = "backgroundassets%2F\(group)"

    let daemon: TestDaemon
    let manager: BADownloadManager

    init() throws {
        let path = try TemporaryDirectory.required().path.appending("socket").string
        daemon = TestDaemon(path: path)
        try daemon.start()
        manager = Self.manager(path)
    }

    private static func manager(_ path: String) -> BADownloadManager {
        let manager = BADownloadManager(environment: ["STAGEPACK_SOCKET": path]) { nil }
        manager.applicationGroupIdentifier = group
        return manager
    }

    /// The manager of another process of the application.
    func other() -> BADownloadManager { Self.manager(daemon.path) }

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

    /// What was changed about tasks.
    func changes() throws -> [TransferChange] {
        try daemon.requests.filter { $0.line.hasPrefix("PATCH") }
            .map { try ControlFormat.decode(TransferChange.self, from: $0.body) }
    }
}

/// Writes down what a delegate hears.
final class Recorder: NSObject, BADownloadManagerDelegate {
    typealias Answer = @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void

    private struct State {
        var lines: [String] = []
        var downloads: [BADownload] = []
        var answer: Answer?
    }

    private let state = Mutex(State())
    private let finished: @Sendable () -> Void
    private let failed: @Sendable (BADownload) -> Void

    init(
        finished: @escaping @Sendable () -> Void = {},
        failed: @escaping @Sendable (BADownload) -> Void = { _ in }
    ) {
        self.finished = finished
        self.failed = failed
    }

    var downloads: [BADownload] { state.withLock { $0.downloads } }
    var answer: Answer? { state.withLock { $0.answer } }

    func lines(_ expected: [String], sourceLocation: SourceLocation = #_sourceLocation) async throws
    {
        try await poll(
            "expected \(expected)",
            sourceLocation: sourceLocation
        ) {
            state.withLock { $0.lines.count } >= expected.count
        }
        #expect(state.withLock { $0.lines } == expected, sourceLocation: sourceLocation)
    }

    private func add(_ line: String, _ download: BADownload) {
        state.withLock { state in
            state.lines.append(line)
            state.downloads.append(download)
        }
    }

    func downloadDidBegin(_ download: BADownload) { add("begin \(download.identifier)", download) }

    func downloadDidPause(_ download: BADownload) { add("pause \(download.identifier)", download) }

    func download(
        _ download: BADownload,
        didWriteBytes bytesWritten: Int64,
        totalBytesWritten: Int64,
        totalBytesExpectedToWrite totalExpectedBytes: Int64
    ) {
        let bytes = "\(bytesWritten), \(totalBytesWritten) of \(totalExpectedBytes)"
        add("wrote \(download.identifier): \(bytes)", download)
    }

    func download(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler: @escaping Answer
    ) {
        let space = challenge.protectionSpace
        state.withLock { $0.answer = completionHandler }
        add("challenged \(download.identifier): \(space.host) \(space.realm ?? "")", download)
    }

    func download(_ download: BADownload, failedWithError error: any Error) {
        let code = (error as? BAError)?.errorCode ?? (error as? URLError)?.errorCode ?? 0
        add("failed \(download.identifier): \(code)", download)
        failed(download)
    }

    func download(_ download: BADownload, finishedWithFileURL fileURL: URL) {
        finished()
        add("finished \(download.identifier): \(fileURL.path(percentEncoded: false))", download)
    }
}

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

/// An application, the daemon that the package builds, and a server; for suites with `.directory`, `.daemon`
/// and `.server`.
struct World {
    static let group = "com.example.aurora"
    static let session = "backgroundassets/\(group)"
    /// The content of most files.
    static let content = Array("a file of thirty bytes, or so.".utf8)

    let daemon: DaemonProcess
    let server = TestServer.current
    let manager: BADownloadManager
    private let front: TLSFront?
    private let gate = Gate()

    /// Starts a daemon that trusts the server and starts discretionary transfers at once.
    ///
    /// `/a` and `/b` have content, `/late` only after ``open()``. Without `serves`, no server answers https.
    init(serves: Bool = true) async throws {
        daemon = try .required()
        front =
            !serves
            ? nil
            : try await TLSFront(port: server.port, below: daemon.directory)
        let none = daemon.directory.appending("none.pem")
        if front == nil { try Data().write(to: URL(filePath: none.string)) }
        let authorities = front?.certificate ?? none
        try daemon.configure(
            """
            {"retryBase": 0.02, "settlingTime": 0, "discretionaryWindow": 0,
             "certificateAuthorities": "\(authorities)"}
            """
        )
        for path in ["/a", "/b"] { server.answer(path, with: .content(Self.content)) }
        server.answer("/late", with: .content(Self.content).waiting(for: gate))
        try await daemon.start()
        manager = .ofApplication(at: daemon.socket.string)
    }

    /// Returns the manager of another process of the application.
    func other() -> BADownloadManager { .ofApplication(at: daemon.socket.string) }

    /// Makes the server respond to the requests for `/late`.
    func open() { gate.open() }

    /// Sets a recorder as the delegate, and waits until the download `secret` has received a challenge.
    func challenge(
        _ recorder: Recorder,
        sourceLocation: SourceLocation = #_sourceLocation
    ) async throws {
        let question = Answer.status(401).field("WWW-Authenticate", #"Basic realm="r""#)
        server.answer("/secret", with: question, .content(Self.content))
        manager.delegate = recorder
        try manager.schedule(download("secret"))
        try await recorder.ends(
            ["challenged secret: 127.0.0.1 r"],
            in: self,
            sourceLocation: sourceLocation
        )
    }

    /// Returns a download of a path, whose identifier is the path by default.
    func download(
        _ identifier: String,
        of path: String? = nil,
        size: Int = World.content.count,
        priority: BADownload.Priority = .default
    ) throws -> BAURLDownload {
        let url = "\(front?.baseURL ?? "https://127.0.0.1:1")/\(path ?? identifier)"
        var request = URLRequest(url: try #require(URL(string: url)))
        request.setValue("x", forHTTPHeaderField: "X-Name")
        return BAURLDownload(
            identifier: identifier,
            request: request,
            essential: false,
            fileSize: size,
            applicationGroupIdentifier: Self.group,
            priority: priority
        )
    }

    /// Returns the daemon's tasks of the application, by id.
    func tasks() async throws -> [TransferTask] {
        try await daemon.client.tasks(in: Self.session).sorted { $0.id < $1.id }
    }

    /// Returns the application's session in the daemon.
    func status() async throws -> SessionStatus { try await daemon.client.session(Self.session) }

    /// Waits until a delegate is attached.
    func attach() async throws {
        try await poll("no delegate is attached") { (try? await status())?.isAttached == true }
    }

    /// Waits until an event was acknowledged.
    func acknowledged(_ sequence: Int64) async throws {
        try await poll("event \(sequence) is not acknowledged") {
            try await status().acknowledgedEvent == sequence
        }
    }
}

/// Records the calls of a delegate.
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
            lines.count >= expected.count
        }
        #expect(lines == expected, sourceLocation: sourceLocation)
    }

    /// Waits for lines other than progress, pauses and resumptions, with locations as `/staged/<task>`.
    func ends(
        _ expected: [String],
        in world: World,
        sourceLocation: SourceLocation = #_sourceLocation
    ) async throws {
        let staged = world.daemon.state.appending("staged/\(geteuid())").string
        var ends: [String] {
            lines.filter { line in !["begin", "pause", "wrote"].contains { line.hasPrefix($0) } }
                .map { $0.replacingOccurrences(of: staged, with: "/staged") }
        }
        try await poll("expected \(expected), found \(lines)", sourceLocation: sourceLocation) {
            ends.count >= expected.count
        }
        #expect(ends == expected, sourceLocation: sourceLocation)
    }

    /// The lines so far.
    var lines: [String] { state.withLock { $0.lines } }

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

extension BADownloadManager {
    /// Creates the manager of a process of the application, at a daemon's socket.
    static func ofApplication(at socket: String) -> BADownloadManager {
        let manager = BADownloadManager(environment: ["STAGEPACK_SOCKET": socket]) { nil }
        manager.applicationGroupIdentifier = World.group
        return manager
    }
}

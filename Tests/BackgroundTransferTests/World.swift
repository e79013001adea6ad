import BackgroundTransfer
import Foundation
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// The daemon that the package builds, a server, and a session; for suites with `.directory`, `.daemon` and `.server`.
struct World {
    let daemon: DaemonProcess
    let server = TestServer.current
    let recorder = Recorder()
    let identifier = "session-\(UInt64.random(in: .min ... .max))"
    /// The server answers requests for `/file`, of 30 bytes, and `/late` once this is open.
    private let gate = Gate()

    /// Creates a daemon with short retry delays, and starts it unless the test does.
    init(starts: Bool = true, configuration: String = "") async throws {
        daemon = try .required()
        let more = configuration.isEmpty ? "" : ", \(configuration)"
        try daemon.configure(#"{"retryBase": 0.02, "settlingTime": 0\#(more)}"#)
        server.answer("/file", with: .content(Array("a file of thirty bytes, or so.".utf8)))
        server.answer("/late", with: .content([1, 2, 3]).waiting(for: gate))
        if starts { try await daemon.start() }
    }

    /// The configuration of the session.
    var configuration: URLSessionConfiguration {
        let configuration = URLSessionConfiguration.background(withIdentifier: identifier)
        configuration.serviceSocketPath = daemon.socket.string
        return configuration
    }

    /// Makes the session.
    func session() -> URLSession {
        URLSession(configuration: configuration, delegate: recorder, delegateQueue: nil)
    }

    /// A URL of the server.
    func url(_ path: String = "/file") throws -> URL { try URL(text: server.url(path)) }

    /// Makes the server respond to the requests for `/late`.
    func open() { gate.open() }

    /// Waits until the delegate has recorded at least `count` lines, and returns them with paths as `/staged/<task>`,
    /// without the lines about received pieces.
    func lines(_ count: Int) async throws -> [String] {
        try await poll("found \(recorder.lines)") { lines.count >= count }
        return lines
    }

    /// The lines that the delegate has recorded so far.
    var lines: [String] {
        let staged = daemon.state.appending("staged/\(geteuid())").string
        return recorder.lines.filter { !$0.hasPrefix("wrote") && !$0.hasPrefix("sent") }
            .map { $0.replacingOccurrences(of: staged, with: "/staged") }
    }

    /// The daemon's tasks of the session, in the order of their numbers.
    func tasks() async throws -> [TransferTask] {
        try await daemon.client.tasks(in: identifier).sorted { $0.id < $1.id }
    }

    /// The session as the daemon has it.
    func status() async throws -> SessionStatus { try await daemon.client.session(identifier) }

    /// Waits until the session receives events.
    func attach() async throws {
        try await poll("no client is attached") {
            (try? await status())?.isAttached == true
        }
    }

    /// Waits until an event was acknowledged.
    func acknowledged(_ sequence: Int64) async throws {
        try await poll("event \(sequence) is not acknowledged") {
            try await status().acknowledgedEvent == sequence
        }
    }

    /// Ends the session.
    func end(_ session: URLSession) async throws {
        open()
        session.invalidateAndCancel()
        try await poll("found \(recorder.lines)") { recorder.lines.last == "invalid: well" }
    }
}

import BackgroundTransfer
import Foundation
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// A simulated daemon and a session, for behaviour that the real daemon cannot be made to show.
struct ScriptedWorld {
    let daemon: TestDaemon
    let recorder = Recorder()
    let identifier = "session-\(UInt64.random(in: .min ... .max))"

    /// Creates a daemon in the directory of the test, which runs.
    init() throws {
        let directory = try TemporaryDirectory.required()
        daemon = TestDaemon(path: "\(directory.path)/socket")
        try daemon.start()
    }

    /// The configuration of the session.
    var configuration: URLSessionConfiguration {
        let configuration = URLSessionConfiguration.background(withIdentifier: identifier)
        configuration.serviceSocketPath = daemon.path
        return configuration
    }

    /// Makes the session; `queue` calls its delegate.
    func session(on queue: OperationQueue? = nil) -> URLSession {
        URLSession(configuration: configuration, delegate: recorder, delegateQueue: queue)
    }

    /// Makes an event happen.
    @discardableResult
    func emit(
        _ kind: SessionEvent.Kind,
        _ task: URLSessionTask? = nil,
        _ change: (inout SessionEvent) -> Void = { _ in }
    ) -> SessionEvent {
        var event = SessionEvent(kind, time: .now)
        if let task {
            while task.daemonTaskNumber == nil { usleep(500) }
            event.task = task.daemonTaskNumber
        }
        change(&event)
        return daemon.emit(event, in: identifier)
    }

    /// Waits until the delegate has recorded at least `count` lines.
    func lines(_ count: Int) async throws -> [String] {
        try await poll("found \(recorder.lines)") { recorder.lines.count >= count }
        return recorder.lines
    }

    /// Waits until the session receives events.
    func attach() async throws {
        try await poll("requests: \(daemon.requests.map(\.line))") { daemon.isAttached(identifier) }
    }

    /// Waits until an event was acknowledged.
    func acknowledged(_ sequence: Int64) async throws {
        try await poll("up to \(daemon.session(identifier)?.acknowledgedEvent ?? -1)") {
            daemon.session(identifier)?.acknowledgedEvent == sequence
        }
    }

    /// Ends the session and the daemon.
    func end(_ session: URLSession) async throws {
        // A session that ends while it has no connection keeps the reason.
        try await poll { session.connectionError == nil }
        session.invalidateAndCancel()
        try await poll("found \(recorder.lines)") { recorder.lines.last == "invalid: well" }
        daemon.stop()
    }
}

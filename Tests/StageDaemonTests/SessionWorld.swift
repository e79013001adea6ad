import BackgroundTransfer
import Foundation
import StageControl
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// A delegate that records its calls, as text and as values.
final class SessionRecorder: NSObject, URLSessionDownloadDelegate, URLSessionDataDelegate {
    struct State {
        var lines: [String] = []
        /// The statuses that the tasks had when bytes were reported.
        var earlyStatuses: [Int?] = []
        var contents: [Int: Data] = [:]
        var bodies: [Int: Data] = [:]
        var counts: [Int: [Int64]] = [:]
        var metrics: [Int: URLSessionTaskMetrics] = [:]
        var ended: [Int: URLError?] = [:]
    }

    let state = Mutex(State())

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didWriteData bytesWritten: Int64,
        totalBytesWritten: Int64,
        totalBytesExpectedToWrite: Int64
    ) {
        let status = (downloadTask.response as? HTTPURLResponse)?.statusCode
        state.withLock { $0.earlyStatuses.append(status) }
    }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didFinishDownloadingTo location: URL
    ) {
        let content = try? Data(contentsOf: location)
        state.withLock { state in
            state.contents[downloadTask.taskIdentifier] = content
            state.counts[downloadTask.taskIdentifier] = [
                downloadTask.countOfBytesReceived, downloadTask.countOfBytesExpectedToReceive,
            ]
        }
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        state.withLock { $0.bodies[dataTask.taskIdentifier] = data }
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didFinishCollecting metrics: URLSessionTaskMetrics
    ) { state.withLock { $0.metrics[task.taskIdentifier] = metrics } }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    ) { state.withLock { $0.ended[task.taskIdentifier] = error as? URLError } }

    func urlSessionDidFinishEvents(forBackgroundURLSession session: URLSession) {
        state.withLock { $0.lines.append("finished events") }
    }

    func urlSession(_ session: URLSession, didBecomeInvalidWithError error: (any Error)?) {
        state.withLock { $0.lines.append("invalid") }
    }
}

/// A session of URLs at the daemon of the running test, which is the program that the package builds.
struct SessionWorld {
    let daemon: DaemonProcess
    let recorder = SessionRecorder()
    let identifier = "session-\(UInt64.random(in: .min ... .max))"

    /// Starts the daemon, with short waits before another attempt.
    init(retryBase: Double = 0.02) async throws {
        daemon = try .required()
        try daemon.configure(#"{"retryBase": \#(retryBase)}"#)
        try await daemon.start()
    }

    /// Makes the session, with a configuration that `change` changes.
    func session(
        delegate: (any URLSessionDelegate)? = nil,
        _ change: (URLSessionConfiguration) -> Void = { _ in }
    ) -> URLSession {
        let configuration = URLSessionConfiguration.background(withIdentifier: identifier)
        configuration.serviceSocketPath = daemon.socket.string
        change(configuration)
        return URLSession(
            configuration: configuration,
            delegate: delegate ?? recorder,
            delegateQueue: nil
        )
    }

    /// Waits until the delegate has received the end of a task, and returns its error.
    func end(of task: URLSessionTask) async throws -> URLError? {
        try await poll("the task does not end: \(task.pendingReasons)") {
            recorder.state.withLock { $0.ended[task.taskIdentifier] } != nil
        }
        return recorder.state.withLock { $0.ended[task.taskIdentifier] } ?? nil
    }

    /// Ends the session, and returns once its delegate has received that.
    func end(_ session: URLSession) async throws {
        session.invalidateAndCancel()
        try await poll("the session does not end") { session.delegate == nil }
    }
}

extension URLSessionTask {
    /// The status of the server's answer.
    var status: Int? { (response as? HTTPURLResponse)?.statusCode }
}

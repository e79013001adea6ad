import BackgroundTransfer
import Foundation
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import Testing

/// A delegate that records its calls.
final class Recorder: NSObject, URLSessionDownloadDelegate, URLSessionDataDelegate {
    struct State {
        var lines: [String] = []
        var errors: [Int: URLError?] = [:]
        var numbers: [Int: Int] = [:]
        var credential: URLCredential?
        var block: (@Sendable () -> Void)?
        var challengeAnswer: (@Sendable () -> Void)?
    }

    let state = Mutex(State())

    /// The calls so far, one line each.
    var lines: [String] { state.withLock { $0.lines } }

    /// Result of an ended task; `nil` while it runs.
    func error(of task: URLSessionTask) -> URLError?? {
        state.withLock { $0.errors[task.taskIdentifier] }
    }

    /// The number of a task in the lines: tasks are numbered in the order of the delegate's calls.
    private func number(of task: URLSessionTask) -> Int {
        state.withLock { state in
            let number = state.numbers[task.taskIdentifier] ?? state.numbers.count + 1
            state.numbers[task.taskIdentifier] = number
            return number
        }
    }

    private func add(_ line: String) { state.withLock { $0.lines.append(line) } }

    func urlSession(_ session: URLSession, didCreateTask task: URLSessionTask) {
        add("created \(number(of: task))")
    }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didWriteData bytesWritten: Int64,
        totalBytesWritten: Int64,
        totalBytesExpectedToWrite: Int64
    ) {
        let id = number(of: downloadTask)
        add("wrote \(id): \(bytesWritten), \(totalBytesWritten) of \(totalBytesExpectedToWrite)")
    }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didResumeAtOffset fileOffset: Int64,
        expectedTotalBytes: Int64
    ) {
        add("resumed \(number(of: downloadTask)): \(fileOffset) of \(expectedTotalBytes)")
    }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didFinishDownloadingTo location: URL
    ) {
        add("finished \(number(of: downloadTask)): \(location.path)")
        state.withLock { $0.block }?()
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didSendBodyData bytesSent: Int64,
        totalBytesSent: Int64,
        totalBytesExpectedToSend: Int64
    ) {
        let id = number(of: task)
        add("sent \(id): \(bytesSent), \(totalBytesSent) of \(totalBytesExpectedToSend)")
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) {
        let space = challenge.protectionSpace
        add(
            "challenged \(number(of: task)): \(space.host):\(space.port) \(space.realm ?? "-")"
                + " \(challenge.previousFailureCount)"
        )
        let credential = state.withLock { $0.credential }
        state.withLock { state in
            state.challengeAnswer = {
                completionHandler(
                    credential == nil ? .rejectProtectionSpace : .useCredential,
                    credential
                )
            }
        }
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didFinishCollecting metrics: URLSessionTaskMetrics
    ) {
        add("metrics \(number(of: task)): \(metrics.redirectCount)")
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    ) {
        let error = error as? URLError
        state.withLock { $0.errors[task.taskIdentifier] = .some(error) }
        add("completed \(number(of: task)): \(error.map { "\($0.code.rawValue)" } ?? "well")")
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        add("answered \(number(of: dataTask)): \(String(decoding: data, as: UTF8.self))")
    }

    func urlSessionDidFinishEvents(forBackgroundURLSession session: URLSession) {
        add("finished events")
    }

    func urlSession(_ session: URLSession, didBecomeInvalidWithError error: (any Error)?) {
        add("invalid: \((error as? URLError).map { "\($0.code.rawValue)" } ?? "well")")
    }
}

extension URL {
    /// Creates a URL from valid text.
    init(text: String) throws { self = try #require(URL(string: text)) }
}

import BackgroundTransfer
import Foundation
import FoundationNetworking
import StageSystem
import StageTesting
import Synchronization
import Testing

/// A delegate that records its calls for tasks in this process.
final class DataRecorder: NSObject, URLSessionDataDelegate, URLSessionDownloadDelegate {
    private struct State {
        var lines: [String] = []
        var data = Data()
        var file: Data?
        var download: URLSessionDownloadTask?
        var location: URL?
        var respond: (@Sendable () -> Void)?
        var sent: [Int64] = []
        var newlySent: Int64 = 0
        var newlyWritten: Int64 = 0
        var metrics: URLSessionTaskMetrics?
    }

    private let disposition: URLSession.ResponseDisposition
    private let credential: URLCredential?
    private let keepsCopies: Bool
    private let redirect: @Sendable (URLRequest) -> URLRequest?
    private let state = Mutex(State())

    init(
        _ disposition: URLSession.ResponseDisposition = .allow,
        credential: URLCredential? = nil,
        keepsCopies: Bool = true,
        redirect: @escaping @Sendable (URLRequest) -> URLRequest? = { $0 }
    ) {
        self.disposition = disposition
        self.credential = credential
        self.keepsCopies = keepsCopies
        self.redirect = redirect
    }

    /// Calls so far, a line for each.
    var lines: [String] { state.withLock { $0.lines } }
    /// The bytes of data tasks.
    var data: Data { state.withLock { $0.data } }
    /// The content of the downloaded file.
    var file: Data? { state.withLock { $0.file } }
    /// The task that a data task has become.
    var download: URLSessionDownloadTask? { state.withLock { $0.download } }
    /// The totals of bytes that were sent.
    var sent: [Int64] { state.withLock { $0.sent } }

    /// The sum of the bytes that were sent since the call before.
    var newlySent: Int64 { state.withLock { $0.newlySent } }
    /// The sum of the bytes of downloads that were received since the call before.
    var newlyWritten: Int64 { state.withLock { $0.newlyWritten } }
    /// Metrics of the last task that ended.
    var metrics: URLSessionTaskMetrics? { state.withLock { $0.metrics } }

    /// Sets a closure that is called before a response is accepted.
    func whenResponding(_ action: @escaping @Sendable () -> Void) {
        state.withLock { $0.respond = action }
    }

    private func add(_ line: String) { state.withLock { $0.lines.append(line) } }

    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didReceive response: URLResponse,
        completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
    ) {
        let status = (response as? HTTPURLResponse)?.statusCode ?? 0
        add("response \(status), \(dataTask.countOfBytesExpectedToReceive)")
        state.withLock { $0.respond }?()
        completionHandler(disposition)
    }

    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didBecome downloadTask: URLSessionDownloadTask
    ) {
        state.withLock { $0.download = downloadTask }
        add("became a download")
    }

    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        willCacheResponse proposedResponse: CachedURLResponse,
        completionHandler: @escaping @Sendable (CachedURLResponse?) -> Void
    ) { completionHandler(keepsCopies ? proposedResponse : nil) }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        state.withLock { state in
            if state.lines.last != "data" { state.lines.append("data") }
            state.data.append(data)
        }
    }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didFinishDownloadingTo location: URL
    ) {
        let content = try? Data(contentsOf: location)
        state.withLock { state in
            state.file = content
            state.location = location
        }
        add("file")
    }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didWriteData bytesWritten: Int64,
        totalBytesWritten: Int64,
        totalBytesExpectedToWrite: Int64
    ) { state.withLock { $0.newlyWritten += bytesWritten } }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didResumeAtOffset fileOffset: Int64,
        expectedTotalBytes: Int64
    ) { add("resumed at \(fileOffset)") }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) {
        add("challenge \(challenge.protectionSpace.realm ?? "-") \(challenge.previousFailureCount)")
        completionHandler(credential == nil ? .performDefaultHandling : .useCredential, credential)
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest,
        completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
        add(
            "redirect \(response.statusCode) \(request.httpMethod ?? "-") \(request.url?.path ?? "-")"
        )
        completionHandler(redirect(request))
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        needNewBodyStream completionHandler: @escaping @Sendable (InputStream?) -> Void
    ) { completionHandler(InputStream(data: Data("streamed".utf8))) }

    func urlSession(_ session: URLSession, taskIsWaitingForConnectivity task: URLSessionTask) {
        add("waiting")
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didSendBodyData bytesSent: Int64,
        totalBytesSent: Int64,
        totalBytesExpectedToSend: Int64
    ) {
        state.withLock { state in
            state.sent.append(totalBytesSent)
            state.newlySent += bytesSent
        }
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didFinishCollecting metrics: URLSessionTaskMetrics
    ) {
        state.withLock { $0.metrics = metrics }
        add("metrics \(metrics.transactionMetrics.count)")
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    ) {
        let location = state.withLock { $0.location }
        if let location, FileManager.default.fileExists(atPath: location.path) {
            add("the file stays")
        }
        add("completed: \((error as? URLError).map { "\($0.code.rawValue)" } ?? "-")")
    }

    func urlSession(_ session: URLSession, didBecomeInvalidWithError error: (any Error)?) {
        add("invalid")
    }
}

/// Expects an `URLError` of a code.
func expect<Value>(
    code: URLError.Code,
    sourceLocation: SourceLocation = #_sourceLocation,
    _ body: () async throws -> Value
) async {
    do {
        _ = try await body()
        Issue.record("expected an error", sourceLocation: sourceLocation)
    } catch {
        #expect((error as? URLError)?.code == code, "\(error)", sourceLocation: sourceLocation)
    }
}

extension URLError.Code {
    /// The error code for a name that cannot be resolved; without a network, the resolver may report another one.
    static var ofUnknownName: URLError.Code {
        NetworkRoute.hasDefault ? .cannotFindHost : .notConnectedToInternet
    }
}

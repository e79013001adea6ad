import BackgroundTransfer
import Foundation

/// A manager of downloads as Apple documents one: what is here is written for iOS, but for the first
/// line.
///
/// The name of the file that a download becomes is kept with the task, so that a process that comes
/// later knows it.
final class DownloadStore: NSObject, URLSessionDownloadDelegate, @unchecked Sendable {
    static let identifier = "com.example.background-downloads"

    private let folder: URL
    private let lock = NSLock()
    private var session: URLSession?
    private var finishEvents: (@Sendable () -> Void)?

    /// Creates a store whose finished downloads are in `folder`.
    init(folder: URL) { self.folder = folder }

    /// Creates the session, or recreates it after a restart of the process.
    func connect() -> URLSession {
        lock.lock()
        defer { lock.unlock() }
        if let session { return session }
        let configuration = URLSessionConfiguration.background(withIdentifier: Self.identifier)
        configuration.isDiscretionary = false
        configuration.sessionSendsLaunchEvents = true
        let session = URLSession(configuration: configuration, delegate: self, delegateQueue: nil)
        self.session = session
        return session
    }

    /// Starts a download; this process may end at once.
    func download(_ url: URL) -> Int {
        var request = URLRequest(url: url)
        request.setValue("background-downloads", forHTTPHeaderField: "User-Agent")
        let task = connect().downloadTask(with: request)
        task.taskDescription = url.lastPathComponent
        task.countOfBytesClientExpectsToReceive = NSURLSessionTransferSizeUnknown
        task.resume()
        return task.taskIdentifier
    }

    /// Starts an upload; this process may end at once.
    func upload(_ file: URL, to url: URL) -> Int {
        var request = URLRequest(url: url)
        request.httpMethod = "PUT"
        let task = connect().uploadTask(with: request, fromFile: file)
        task.taskDescription = file.lastPathComponent
        task.resume()
        return task.taskIdentifier
    }

    /// Pauses a download; the resume data contain its progress.
    func pause(_ identifier: Int, completion: @escaping @Sendable (Data?) -> Void) {
        let session = connect()
        session.getTasksWithCompletionHandler { _, _, downloads in
            guard let task = downloads.first(where: { $0.taskIdentifier == identifier }) else {
                completion(nil)
                return
            }
            task.cancel(byProducingResumeData: completion)
        }
    }

    /// Resumes a paused download.
    func resume(_ data: Data) -> Int {
        let task = connect().downloadTask(withResumeData: data)
        task.resume()
        return task.taskIdentifier
    }

    /// Invalidates the session once its running tasks have finished.
    func finish() {
        connect().finishTasksAndInvalidate()
    }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didWriteData bytesWritten: Int64,
        totalBytesWritten: Int64,
        totalBytesExpectedToWrite: Int64
    ) {
        print(
            "\(downloadTask.taskIdentifier): \(totalBytesWritten) of \(totalBytesExpectedToWrite)"
        )
    }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didResumeAtOffset fileOffset: Int64,
        expectedTotalBytes: Int64
    ) {
        print("\(downloadTask.taskIdentifier): resumed at \(fileOffset)")
    }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didFinishDownloadingTo location: URL
    ) {
        let name = downloadTask.taskDescription ?? "\(downloadTask.taskIdentifier)"
        let target = folder.appendingPathComponent(name)
        do {
            try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
            if FileManager.default.fileExists(atPath: target.path) {
                try FileManager.default.removeItem(at: target)
            }
            try FileManager.default.moveItem(at: location, to: target)
            print("\(downloadTask.taskIdentifier): is at \(target.path)")
        } catch {
            print("\(downloadTask.taskIdentifier): cannot be moved: \(error)")
        }
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didSendBodyData bytesSent: Int64,
        totalBytesSent: Int64,
        totalBytesExpectedToSend: Int64
    ) {
        print("\(task.taskIdentifier): sent \(totalBytesSent) of \(totalBytesExpectedToSend)")
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) {
        let user = ProcessInfo.processInfo.environment["DOWNLOADS_USER"]
        let password = ProcessInfo.processInfo.environment["DOWNLOADS_PASSWORD"]
        guard challenge.protectionSpace.authenticationMethod == NSURLAuthenticationMethodHTTPBasic,
            challenge.previousFailureCount == 0, let user, let password
        else {
            completionHandler(.performDefaultHandling, nil)
            return
        }
        let credential = URLCredential(user: user, password: password, persistence: .forSession)
        completionHandler(.useCredential, credential)
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didFinishCollecting metrics: URLSessionTaskMetrics
    ) {
        print("\(task.taskIdentifier): took \(metrics.taskInterval.duration) seconds")
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    ) {
        guard let error = error as? URLError else {
            let status = (task.response as? HTTPURLResponse)?.statusCode ?? 0
            print("\(task.taskIdentifier): has ended, status \(status)")
            return
        }
        let canResume = error.downloadTaskResumeData != nil
        print(
            "\(task.taskIdentifier): failed: \(error.localizedDescription) (\(error.code.rawValue))"
                + (canResume ? ", can be resumed" : "")
        )
    }

    func urlSessionDidFinishEvents(forBackgroundURLSession session: URLSession) {
        lock.lock()
        let finish = finishEvents
        finishEvents = nil
        lock.unlock()
        print("all events were told")
        finish?()
    }

    func urlSession(_ session: URLSession, didBecomeInvalidWithError error: (any Error)?) {
        print("the session is over\(error.map { ": \($0.localizedDescription)" } ?? "")")
        exit(error == nil ? 0 : 1)
    }
}

extension DownloadStore: BackgroundURLSessionHandling {
    // On iOS, this is a method of the application's delegate.
    func application(
        handleEventsForBackgroundURLSession identifier: String,
        completionHandler: @escaping @Sendable () -> Void
    ) {
        lock.lock()
        finishEvents = completionHandler
        lock.unlock()
        _ = connect()
    }
}

/// Prints for whoever watches, also by way of a pipe.
private func print(_ text: String) {
    FileHandle.standardOutput.write(Data("\(text)\n".utf8))
}

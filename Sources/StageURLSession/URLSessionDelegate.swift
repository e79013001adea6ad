public import Foundation
public import FoundationNetworking

/// Is told what becomes of a session, on the session's delegate queue.
///
/// All methods of all protocols are optional, except that a download's delegate takes the file in. An
/// event is the daemon's to repeat until the methods that are called for it have returned.
public protocol URLSessionDelegate: NSObjectProtocol, Sendable {
    /// Says that the session is at its end, after ``URLSession/finishTasksAndInvalidate()`` or
    /// ``URLSession/invalidateAndCancel()``, or because of `error`.
    func urlSession(_ session: URLSession, didBecomeInvalidWithError error: (any Error)?)

    /// Never called: what concerns a connection is settled by the daemon's trust, and who asks is asked by
    /// ``URLSessionTaskDelegate/urlSession(_:task:didReceive:completionHandler:)``.
    func urlSession(
        _ session: URLSession,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    )

    /// Says that the events are delivered which had happened before the session was made: now is the time to call the
    /// completion handler of
    /// ``BackgroundURLSessionHandling/application(handleEventsForBackgroundURLSession:completionHandler:)``.
    ///
    /// It is called once, and not for a session that had no events waiting, unless the daemon has started the process.
    func urlSessionDidFinishEvents(forBackgroundURLSession session: URLSession)
}

/// Is told what becomes of tasks.
///
/// What Apple's protocol has beyond this is never called for background sessions, or has no place here: a request whose
/// time has come is made as it is.
public protocol URLSessionTaskDelegate: URLSessionDelegate {
    /// Says that a task was made, before the method that makes it returns to its caller's code.
    func urlSession(_ session: URLSession, didCreateTask task: URLSessionTask)

    /// Asks who is asking, for a server; an answer may be given later, on any thread.
    ///
    /// A name and password are sent as Basic authentication, where the server offers that. Any other
    /// answer ends the task with the server's refusal, `.cancelAuthenticationChallenge` cancels it.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    )

    /// Asks who is asking, for a server, and waits for the answer.
    ///
    /// It is called where the method with a completion handler is not implemented.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge
    ) async -> (URLSession.AuthChallengeDisposition, URLCredential?)

    /// Asks whether a redirect is to be followed, for a data or upload task of a session in this process: with the
    /// request to send, `newRequest` or another one, or with `nil` to take the redirect itself as the answer.
    ///
    /// Download tasks and background sessions follow redirects without asking. Credentials and cookies are left out of
    /// `newRequest` where it goes to another origin.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest,
        completionHandler: @escaping @Sendable (URLRequest?) -> Void
    )

    /// Asks whether a redirect is to be followed, and waits for the answer.
    ///
    /// It is called where the method with a completion handler is not implemented.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest
    ) async -> URLRequest?

    /// Asks for the body of a task that was made by ``URLSession/uploadTask(withStreamedRequest:)``.
    ///
    /// The stream is read to its end before the request is sent.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        needNewBodyStream completionHandler: @escaping @Sendable (InputStream?) -> Void
    )

    /// Says that no connection came about, and that another attempt is made later, since
    /// ``URLSessionConfiguration/waitsForConnectivity`` is set for a session in this process.
    func urlSession(_ session: URLSession, taskIsWaitingForConnectivity task: URLSessionTask)

    /// Says how much of a body was sent.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didSendBodyData bytesSent: Int64,
        totalBytesSent: Int64,
        totalBytesExpectedToSend: Int64
    )

    /// Says what a task has cost.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didFinishCollecting metrics: URLSessionTaskMetrics
    )

    /// Says that a task has ended: the last there is to say of it.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    )
}

/// Is told what becomes of downloads.
public protocol URLSessionDownloadDelegate: URLSessionTaskDelegate {
    /// Hands a finished download over: `location` is to be moved to where it belongs before the method
    /// returns.
    ///
    /// A file that is left is removed by the daemon, some time after the method has returned.
    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didFinishDownloadingTo location: URL
    )

    /// Says how much was received.
    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didWriteData bytesWritten: Int64,
        totalBytesWritten: Int64,
        totalBytesExpectedToWrite: Int64
    )

    /// Says where a download goes on that was interrupted.
    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didResumeAtOffset fileOffset: Int64,
        expectedTotalBytes: Int64
    )
}

/// Is told what servers answer to data and upload tasks.
public protocol URLSessionDataDelegate: URLSessionTaskDelegate {
    /// Asks what to do with an answer whose head is here, in a session in this process; bytes wait for the reply.
    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didReceive response: URLResponse,
        completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
    )

    /// Asks what to do with an answer whose head is here, and waits for the reply.
    ///
    /// It is called where the method with a completion handler is not implemented.
    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didReceive response: URLResponse
    ) async -> URLSession.ResponseDisposition

    /// Says that a data task goes on as a download task, and is not heard of any more.
    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didBecome downloadTask: URLSessionDownloadTask
    )

    /// Asks what the cache is to keep of an answer that is complete; `nil` for nothing.
    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        willCacheResponse proposedResponse: CachedURLResponse,
        completionHandler: @escaping @Sendable (CachedURLResponse?) -> Void
    )

    /// Asks what the cache is to keep of an answer that is complete, and waits for the reply.
    ///
    /// It is called where the method with a completion handler is not implemented.
    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        willCacheResponse proposedResponse: CachedURLResponse
    ) async -> CachedURLResponse?

    /// Hands over the next bytes of an answer; of an upload in a background session all of it, up to 64 KiB.
    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didReceive data: Data
    )
}

extension URLSessionDataDelegate {
    /// Replies as the method does that returns the disposition.
    public func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didReceive response: URLResponse,
        completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
    ) {
        let response = UnchangingResponse(value: response)
        // The delegate's reply may take any time, and the queue of its other calls must not wait for it.
        Task {
            completionHandler(
                await urlSession(session, dataTask: dataTask, didReceive: response.value)
            )
        }
    }

    /// Takes the answer.
    public func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didReceive response: URLResponse
    ) async -> URLSession.ResponseDisposition { .allow }

    /// Does nothing.
    public func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didBecome downloadTask: URLSessionDownloadTask
    ) {}

    /// Replies as the method does that returns what is to be kept.
    public func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        willCacheResponse proposedResponse: CachedURLResponse,
        completionHandler: @escaping @Sendable (CachedURLResponse?) -> Void
    ) {
        let proposed = UnchangingCachedResponse(value: proposedResponse)
        // The delegate's reply may take any time, and the queue of its other calls must not wait for it.
        Task {
            completionHandler(
                await urlSession(session, dataTask: dataTask, willCacheResponse: proposed.value)
            )
        }
    }

    /// Keeps the answer.
    public func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        willCacheResponse proposedResponse: CachedURLResponse
    ) async -> CachedURLResponse? { proposedResponse }

    /// Does nothing.
    public func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didReceive data: Data
    ) {}
}

extension URLSessionDelegate {
    /// Does nothing.
    public func urlSession(_ session: URLSession, didBecomeInvalidWithError error: (any Error)?) {}

    /// Leaves the answer to the system.
    public func urlSession(
        _ session: URLSession,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) {
        completionHandler(.performDefaultHandling, nil)
    }

    /// Does nothing.
    public func urlSessionDidFinishEvents(forBackgroundURLSession session: URLSession) {}
}

extension URLSessionTaskDelegate {
    /// Does nothing.
    public func urlSession(_ session: URLSession, didCreateTask task: URLSessionTask) {}

    /// Gives the answer of the method that returns one.
    public func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) {
        let challenge = UnchangingChallenge(value: challenge)
        // The delegate's answer may take any time, and the queue of its other calls must not wait for it.
        Task {
            let (disposition, credential) = await urlSession(
                session,
                task: task,
                didReceive: challenge.value
            )
            completionHandler(disposition, credential)
        }
    }

    /// Leaves the answer to the system, which has that of the session's credential storage.
    public func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge
    ) async -> (URLSession.AuthChallengeDisposition, URLCredential?) {
        (.performDefaultHandling, nil)
    }

    /// Follows redirects as the method says that returns the request.
    public func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest,
        completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
        let response = UnchangingHTTPResponse(value: response)
        // The delegate's answer may take any time, and the queue of its other calls must not wait for it.
        Task {
            completionHandler(
                await urlSession(
                    session,
                    task: task,
                    willPerformHTTPRedirection: response.value,
                    newRequest: request
                )
            )
        }
    }

    /// Follows redirects.
    public func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest
    ) async -> URLRequest? { request }

    /// Has no body.
    public func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        needNewBodyStream completionHandler: @escaping @Sendable (InputStream?) -> Void
    ) { completionHandler(nil) }

    /// Does nothing.
    public func urlSession(
        _ session: URLSession,
        taskIsWaitingForConnectivity task: URLSessionTask
    ) {}

    /// Does nothing.
    public func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didSendBodyData bytesSent: Int64,
        totalBytesSent: Int64,
        totalBytesExpectedToSend: Int64
    ) {}

    /// Does nothing.
    public func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didFinishCollecting metrics: URLSessionTaskMetrics
    ) {}

    /// Does nothing.
    public func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    ) {}
}

extension URLSessionDownloadDelegate {
    /// Does nothing.
    public func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didWriteData bytesWritten: Int64,
        totalBytesWritten: Int64,
        totalBytesExpectedToWrite: Int64
    ) {}

    /// Does nothing.
    public func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didResumeAtOffset fileOffset: Int64,
        expectedTotalBytes: Int64
    ) {}
}

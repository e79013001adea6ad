public import Foundation
public import FoundationNetworking
import StageChallenge

/// Receiver of the events of a session, called on the session's delegate queue unless a method says otherwise.
///
/// All methods of all protocols are optional, except for the one that receives a download's file. The daemon delivers an
/// event of a background session again until the methods for it have returned.
public protocol URLSessionDelegate: NSObjectProtocol, Sendable {
    /// Reports that the session has ended, after ``URLSession/finishTasksAndInvalidate()`` or
    /// ``URLSession/invalidateAndCancel()``, or because of `error`.
    func urlSession(_ session: URLSession, didBecomeInvalidWithError error: (any Error)?)

    /// Never called: the configuration of the daemon, or the environment of this process, decides about trust, and
    /// requests for credentials call ``URLSessionTaskDelegate/urlSession(_:task:didReceive:completionHandler:)``.
    func urlSession(
        _ session: URLSession,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    )

    /// Reports that all events are delivered that are older than the session object: now call the completion handler
    /// of ``BackgroundURLSessionHandling/application(handleEventsForBackgroundURLSession:completionHandler:)``.
    ///
    /// It is called once, if the session had waiting events or the daemon has started the process.
    func urlSessionDidFinishEvents(forBackgroundURLSession session: URLSession)
}

/// Receiver of the events of tasks.
///
/// Further methods of Apple's protocol are never called for background sessions, or have no counterpart here: the
/// daemon starts a delayed request without asking.
public protocol URLSessionTaskDelegate: URLSessionDelegate {
    /// Reports a new task on the thread that creates it, before the creating method returns.
    func urlSession(_ session: URLSession, didCreateTask task: URLSessionTask)

    /// Asks for credentials for a server; the completion handler may be called later, on any thread.
    ///
    /// A name and password are sent as Basic authentication, if the server offers that. Any other answer completes
    /// the task with the server's error response, and `.cancelAuthenticationChallenge` cancels it.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    )

    /// Asks for credentials for a server, and waits for the answer.
    ///
    /// Called if the method with a completion handler is not implemented.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge
    ) async -> (URLSession.AuthChallengeDisposition, URLCredential?)

    /// Asks whether to follow a redirect, for a data or upload task of a session in this process: reply with the
    /// request to send, `newRequest` or another one, or with `nil` to accept the redirect itself as the response.
    ///
    /// Download tasks and background sessions follow redirects without asking. `newRequest` has no credentials and
    /// cookies if it goes to another origin.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest,
        completionHandler: @escaping @Sendable (URLRequest?) -> Void
    )

    /// Asks whether to follow a redirect, and waits for the answer.
    ///
    /// Called if the method with a completion handler is not implemented.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest
    ) async -> URLRequest?

    /// Asks for the body of a task that was created by ``URLSession/uploadTask(withStreamedRequest:)``.
    ///
    /// It is called once: the stream is read to its end before the request is sent, and its bytes are kept for a request
    /// that is sent again.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        needNewBodyStream completionHandler: @escaping @Sendable (InputStream?) -> Void
    )

    /// Reports, once for a task, that it waits since this machine has no network:
    /// ``URLSessionConfiguration/waitsForConnectivity`` is set for a session in this process.
    func urlSession(_ session: URLSession, taskIsWaitingForConnectivity task: URLSessionTask)

    /// Reports the number of body bytes that were sent; the total begins again with a body that is sent again, as after
    /// a challenge.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didSendBodyData bytesSent: Int64,
        totalBytesSent: Int64,
        totalBytesExpectedToSend: Int64
    )

    /// Reports the metrics of a task.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didFinishCollecting metrics: URLSessionTaskMetrics
    )

    /// Reports the end of a task; it is the last call about it.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    )
}

/// Receiver of the events of downloads.
public protocol URLSessionDownloadDelegate: URLSessionTaskDelegate {
    /// Delivers a finished download: the method must move the file at `location` before it returns.
    ///
    /// A file that was not moved is removed: by the daemon some time after the method has returned, otherwise at once.
    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didFinishDownloadingTo location: URL
    )

    /// Reports the number of bytes that were received; the total begins again with a download that starts again at its
    /// first byte.
    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didWriteData bytesWritten: Int64,
        totalBytesWritten: Int64,
        totalBytesExpectedToWrite: Int64
    )

    /// Reports the offset at which an interrupted download was resumed.
    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didResumeAtOffset fileOffset: Int64,
        expectedTotalBytes: Int64
    )
}

/// Receiver of the responses to data and upload tasks.
public protocol URLSessionDataDelegate: URLSessionTaskDelegate {
    /// Asks for a decision about a response whose head has arrived, in a session in this process; its bytes wait for
    /// the reply.
    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didReceive response: URLResponse,
        completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
    )

    /// Asks for a decision about a response whose head has arrived, and waits for the reply.
    ///
    /// Called if the method with a completion handler is not implemented.
    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didReceive response: URLResponse
    ) async -> URLSession.ResponseDisposition

    /// Reports that a data task continues as a download task; there are no more calls about the data task.
    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didBecome downloadTask: URLSessionDownloadTask
    )

    /// Asks for the form in which the cache should store a complete response; reply `nil` to store nothing.
    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        willCacheResponse proposedResponse: CachedURLResponse,
        completionHandler: @escaping @Sendable (CachedURLResponse?) -> Void
    )

    /// Asks for the form in which the cache should store a complete response, and waits for the reply.
    ///
    /// Called if the method with a completion handler is not implemented.
    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        willCacheResponse proposedResponse: CachedURLResponse
    ) async -> CachedURLResponse?

    /// Delivers the next bytes of a response; for an upload in a background session, all of it, up to 64 KiB.
    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didReceive data: Data
    )
}

extension URLSessionDataDelegate {
    /// Replies with the result of the method that returns the disposition.
    public func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didReceive response: URLResponse,
        completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
    ) {
        let response = UnchangingResponse(value: response)
        // The delegate's reply may take any time, and must not block its queue.
        Task {
            completionHandler(
                await urlSession(session, dataTask: dataTask, didReceive: response.value)
            )
        }
    }

    /// Allows the response.
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

    /// Replies with the result of the method that returns the response to store.
    public func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        willCacheResponse proposedResponse: CachedURLResponse,
        completionHandler: @escaping @Sendable (CachedURLResponse?) -> Void
    ) {
        let proposed = UnchangingCachedResponse(value: proposedResponse)
        // The delegate's reply may take any time, and must not block its queue.
        Task {
            completionHandler(
                await urlSession(session, dataTask: dataTask, willCacheResponse: proposed.value)
            )
        }
    }

    /// Stores the response unchanged.
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

    /// Replies with default handling.
    public func urlSession(
        _ session: URLSession,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) { completionHandler(.performDefaultHandling, nil) }

    /// Does nothing.
    public func urlSessionDidFinishEvents(forBackgroundURLSession session: URLSession) {}
}

extension URLSessionTaskDelegate {
    /// Does nothing.
    public func urlSession(_ session: URLSession, didCreateTask task: URLSessionTask) {}

    /// Replies with the result of the method that returns an answer.
    public func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) {
        let challenge = UnchangingChallenge(value: challenge)
        // The delegate's answer may take any time, and must not block its queue.
        Task {
            let (disposition, credential) = await urlSession(
                session,
                task: task,
                didReceive: challenge.value
            )
            completionHandler(disposition, credential)
        }
    }

    /// Replies with default handling, which uses the session's credential storage.
    public func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge
    ) async -> (URLSession.AuthChallengeDisposition, URLCredential?) {
        (.performDefaultHandling, nil)
    }

    /// Replies with the result of the method that returns the request.
    public func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest,
        completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
        let response = UnchangingHTTPResponse(value: response)
        // The delegate's answer may take any time, and must not block its queue.
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

    /// Follows the redirect.
    public func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest
    ) async -> URLRequest? { request }

    /// Provides no body.
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

public import Foundation
public import FoundationNetworking
import StageChallenge

/// Receives the events of an application's downloads, in any process of the application.
///
/// All methods are optional. The manager calls them on threads of its own, one after another for the downloads of an
/// application group. Only one delegate receives the events of a group at a time: that of the first process.
public protocol BADownloadManagerDelegate: NSObjectProtocol, Sendable {
    /// Called when a download starts, or resumes after a pause, and for a download that is running when the delegate is set.
    func downloadDidBegin(_ download: BADownload)

    /// Called when a running download pauses.
    func downloadDidPause(_ download: BADownload)

    /// Called with the bytes received since the last call, and in all.
    func download(
        _ download: BADownload,
        didWriteBytes bytesWritten: Int64,
        totalBytesWritten: Int64,
        totalBytesExpectedToWrite totalExpectedBytes: Int64
    )

    /// Called once for an authentication challenge; the completion handler may be called later, on any thread, and the first
    /// call counts.
    func download(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (
                URLSession.AuthChallengeDisposition, URLCredential?
            ) -> Void
    )

    /// Called once for an authentication challenge, and waits for the answer.
    ///
    /// Called if the method with a completion handler is not implemented.
    func download(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge
    ) async -> (URLSession.AuthChallengeDisposition, URLCredential?)

    /// Called when a download has failed; it may be scheduled again.
    ///
    /// The error is a ``BAError`` with the reason as its message. Its code is ``BAErrorCode/downloadFailedToStart`` if the
    /// content could not be stored, such as on a full disk, and ``BAErrorCode/downloadAlreadyFailed`` after every other
    /// failure. The error is `URLError.cancelled` if another process, or an answer to a challenge, has cancelled the download.
    func download(_ download: BADownload, failedWithError error: any Error)

    /// Called with a downloaded file, which is removed afterwards unless it was moved.
    func download(_ download: BADownload, finishedWithFileURL fileURL: URL)
}

extension BADownloadManagerDelegate {
    /// Does nothing.
    public func downloadDidBegin(_ download: BADownload) {}

    /// Does nothing.
    public func downloadDidPause(_ download: BADownload) {}

    /// Does nothing.
    public func download(
        _ download: BADownload,
        didWriteBytes bytesWritten: Int64,
        totalBytesWritten: Int64,
        totalBytesExpectedToWrite totalExpectedBytes: Int64
    ) {}

    /// Replies with the result of the method that returns an answer.
    public func download(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (
                URLSession.AuthChallengeDisposition, URLCredential?
            ) -> Void
    ) {
        let challenge = UnchangingChallenge(value: challenge)
        // The delegate's answer may take any time, and must not block the thread of the manager.
        Task {
            let (disposition, credential) = await self.download(
                download,
                didReceive: challenge.value
            )
            completionHandler(disposition, credential)
        }
    }

    /// Supplies no credential: the download fails with the server's response.
    public func download(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge
    ) async -> (URLSession.AuthChallengeDisposition, URLCredential?) {
        (.performDefaultHandling, nil)
    }

    /// Does nothing.
    public func download(_ download: BADownload, failedWithError error: any Error) {}

    /// Does not move the file, which is then removed.
    public func download(_ download: BADownload, finishedWithFileURL fileURL: URL) {}
}

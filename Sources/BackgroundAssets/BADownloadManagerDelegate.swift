public import Foundation
public import FoundationNetworking

/// Hears what becomes of an application's downloads, in any process of the application.
///
/// All methods are optional. They are called one after another, on a thread of the manager's. One delegate
/// hears of the downloads of an application group at a time: that of the process which was first.
public protocol BADownloadManagerDelegate: NSObjectProtocol, Sendable {
    /// Hears that a download is under way, for the first time or again after a pause.
    func downloadDidBegin(_ download: BADownload)

    /// Hears that a download waits, which had begun.
    func downloadDidPause(_ download: BADownload)

    /// Hears how many bytes came since the last time, and in all.
    func download(
        _ download: BADownload,
        didWriteBytes bytesWritten: Int64,
        totalBytesWritten: Int64,
        totalBytesExpectedToWrite totalExpectedBytes: Int64
    )

    /// Answers a server that wants to know who asks, once, at any time and on any thread.
    func download(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (
                URLSession.AuthChallengeDisposition, URLCredential?
            ) -> Void
    )

    /// Hears that a download failed; it may be scheduled again.
    func download(_ download: BADownload, failedWithError error: any Error)

    /// Takes a file, which is removed afterwards unless it was moved.
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

    /// Has no answer: the download fails of the server's refusal.
    public func download(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (
                URLSession.AuthChallengeDisposition, URLCredential?
            ) -> Void
    ) {
        completionHandler(.performDefaultHandling, nil)
    }

    /// Does nothing.
    public func download(_ download: BADownload, failedWithError error: any Error) {}

    /// Leaves the file to be removed.
    public func download(_ download: BADownload, finishedWithFileURL fileURL: URL) {}
}

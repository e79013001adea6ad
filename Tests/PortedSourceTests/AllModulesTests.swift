import BackgroundAssets
import BackgroundTransfer
import Foundation
import FoundationNetworking
import Testing

/// A delegate of both frameworks, as an application has it that fetches maps by itself and packs by the manager.
private final class EveryDelegate: NSObject, BADownloadManagerDelegate, URLSessionDownloadDelegate,
    URLSessionDataDelegate, Sendable
{
    func download(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) { completionHandler(.performDefaultHandling, nil) }

    func download(_ download: BADownload, failedWithError error: any Error) {}

    func download(_ download: BADownload, finishedWithFileURL fileURL: URL) {}

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) { completionHandler(.cancelAuthenticationChallenge, nil) }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didFinishDownloadingTo location: URL
    ) {}

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    ) { _ = (error as? URLError)?.downloadTaskResumeData }
}

/// A downloader extension beside it.
private struct EveryDelegateExtension: BADownloaderExtension {
    func backgroundDownload(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge
    ) async -> (URLSession.AuthChallengeDisposition, URLCredential?) {
        (.useCredential, URLCredential(user: "u", password: "p", persistence: .none))
    }
}

/// A file in Swift 6 mode that imports everything that has a `URLSession`.
struct AllModulesTests {
    @Test func theSessionIsTheBackgroundSession() {
        let configuration = URLSessionConfiguration.background(withIdentifier: "")
        let session = URLSession(
            configuration: configuration,
            delegate: EveryDelegate(),
            delegateQueue: nil
        )
        let kind: BackgroundTransfer.URLSession.Type = type(of: session)
        #expect(kind == URLSession.self)
        #expect(NSURLSessionTransferSizeUnknown == -1)
        #expect(URLSessionTask.State.running.rawValue == 0)
        #expect(FoundationNetworking.URLSession.shared.delegate == nil)
    }
}

import BackgroundTransfer
import Foundation
import FoundationNetworking
import Testing

/// A delegate as an application has it.
private final class MapDelegate: NSObject, URLSessionDownloadDelegate,
    URLSessionDataDelegate, Sendable
{
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

/// A file in Swift 5 mode that imports the networking of Foundation beside background sessions.
struct NetworkingTests {
    @Test func theSessionIsTheBackgroundSession() {
        let configuration = URLSessionConfiguration.background(withIdentifier: "")
        let session = URLSession(
            configuration: configuration,
            delegate: MapDelegate(),
            delegateQueue: nil
        )
        let kind: BackgroundTransfer.URLSession.Type = type(of: session)
        #expect(kind == URLSession.self)
        #expect(NSURLSessionTransferSizeUnknown == -1)
        #expect(URLSessionTask.State.running.rawValue == 0)
        #expect(FoundationNetworking.URLSession.shared.delegate == nil)
    }
}

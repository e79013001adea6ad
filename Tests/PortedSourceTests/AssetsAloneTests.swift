import BackgroundAssets
import Testing

/// A file that imports one framework, as the listings of Apple's documentation do.
struct AssetsAloneTests {
    /// Its delegate needs no further import for the names in its signature.
    private final class Delegate: NSObject, BADownloadManagerDelegate {
        func download(
            _ download: BADownload,
            didReceive challenge: URLAuthenticationChallenge,
            completionHandler:
                @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
        ) { completionHandler(.performDefaultHandling, nil) }

        func download(_ download: BADownload, failedWithError error: any Error) {}

        func download(_ download: BADownload, finishedWithFileURL fileURL: URL) {}
    }

    @Test func theSessionIsFoundations() {
        #expect(URLSession.shared.delegate == nil)
        #expect(Delegate().isEqual(nil) == false)
    }
}

import BackgroundTransfer
import Foundation

/// The values that the snippets of 'Foundation.tsv' use.
final class Snippets: NSObject {
    var session: URLSession { fatalError() }
    var configuration: URLSessionConfiguration { fatalError() }
    var task: URLSessionTask { fatalError() }
    var dataTask: URLSessionDataTask { fatalError() }
    var uploadTask: URLSessionUploadTask { fatalError() }
    var downloadTask: URLSessionDownloadTask { fatalError() }
    var webSocketTask: URLSessionWebSocketTask { fatalError() }
    var taskMetrics: URLSessionTaskMetrics { fatalError() }
    var transaction: URLSessionTaskTransactionMetrics { fatalError() }
    var url: URL { fatalError() }
    var data: Data { fatalError() }
    var request: URLRequest {
        get { fatalError() }
        set { fatalError() }
    }
    var response: URLResponse { fatalError() }
    var httpResponse: HTTPURLResponse { fatalError() }
    var cached: CachedURLResponse { fatalError() }
    var cache: URLCache { fatalError() }
    var cookie: HTTPCookie { fatalError() }
    var cookies: HTTPCookieStorage { fatalError() }
    var credential: URLCredential { fatalError() }
    var credentials: URLCredentialStorage { fatalError() }
    var space: URLProtectionSpace { fatalError() }
    var challenge: URLAuthenticationChallenge { fatalError() }
    var sender: any URLAuthenticationChallengeSender { fatalError() }
    var error: URLError { fatalError() }
    var client: any URLProtocolClient { fatalError() }
    var loader: URLProtocol { fatalError() }
    var delegate: any URLSessionDelegate { fatalError() }
    var taskDelegate: any URLSessionTaskDelegate { fatalError() }
    var dataDelegate: any URLSessionDataDelegate { fatalError() }
    var downloadDelegate: any URLSessionDownloadDelegate { fatalError() }
    var webSocketDelegate: any URLSessionWebSocketDelegate { fatalError() }
}

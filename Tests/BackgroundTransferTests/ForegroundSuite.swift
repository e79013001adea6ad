import BackgroundTransfer
import Foundation
import StageTesting
import Testing

/// Tests of sessions in this process, at a server of the test.
protocol ForegroundSuite {}

extension ForegroundSuite {
    /// The server of the test.
    var server: TestServer { .current }

    /// A session whose cookies, credentials and cache are its own.
    func session(
        _ delegate: (any URLSessionDelegate)? = nil,
        _ change: (URLSessionConfiguration) -> Void = { _ in }
    ) -> URLSession {
        let configuration = URLSessionConfiguration.ephemeral
        change(configuration)
        return URLSession(configuration: configuration, delegate: delegate, delegateQueue: nil)
    }

    /// The URL of a path of the server.
    func url(_ path: String) throws -> URL { try #require(URL(string: server.url(path))) }

    /// A request for a path of the server.
    func request(_ path: String, _ method: String) throws -> URLRequest {
        var request = URLRequest(url: try url(path))
        request.httpMethod = method
        return request
    }

    /// Content of so many bytes.
    func data(_ count: Int) -> [UInt8] {
        noise(count)
    }
}

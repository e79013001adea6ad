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

    /// A URL at which no server listens: its port is none of those that the servers of tests get.
    var closedURL: String { "http://127.0.0.1:1/a" }

    /// A request for a path of the server.
    func request(_ path: String, _ method: String) throws -> URLRequest {
        var request = URLRequest(url: try url(path))
        request.httpMethod = method
        return request
    }

    /// Returns `count` bytes of content, each of which is a seventh of its offset.
    func data(_ count: Int) -> [UInt8] {
        // The content repeats itself: a closure for each of millions of bytes is slow in a debug build.
        let period = (0..<7 * 256).map { UInt8($0 / 7) }
        var content: [UInt8] = []
        while content.count < count { content += period }
        return Array(content.prefix(count))
    }
}

import StageModel
import StageOrigin
import StageTesting
import StageTransfer
import StageWebSocket
import StageWebSocketClient
import Synchronization
import Testing

/// Requests that the echo accepts, and those that it refuses.
@Suite(.directory) struct EchoAdmissionTests {
    /// Exchanges a message with the echo, as a web page of an origin does; `PORT` in the URL stands for the port of the echo.
    private static func exchange(
        with url: String,
        over engine: TransferEngine,
        origins: [String]
    ) async throws {
        let number = url.split(separator: ":")[2].prefix { $0 != "/" }
        var options = WebSocketOptions()
        options.fields = origins.map {
            WebSocketField(name: "Origin", value: $0.replacing("PORT", with: number))
        }
        try await WebSocket.withConnection(to: url, over: engine, options: options) {
            messages,
            writer in
            var iterator = messages.makeAsyncIterator()
            try await writer.send("a")
            #expect(try await iterator.next() == .text("a"))
        }
    }

    @Test(arguments: [[], ["http://127.0.0.1:PORT"], ["https://127.0.0.1:PORT"]])
    func aPageOfTheSameOriginIsServed(origins: [String]) async throws {
        try await withEcho { engine, url in
            try await Self.exchange(with: url, over: engine, origins: origins)
        }
    }

    @Test(arguments: [
        ["null"], [""], ["http://127.0.0.1"], ["http://127.0.0.1:1"], ["http://localhost:PORT"],
        ["https://example.net"], ["http://127.0.0.1:PORT.example.net"],
        ["http://example.net/127.0.0.1:PORT"], ["http://a@127.0.0.1:PORT"], ["file://"],
        ["ftp://127.0.0.1:PORT"], ["127.0.0.1:PORT"],
        ["http://127.0.0.1:PORT", "https://example.net"],
    ])
    func aPageOfAnotherOriginIsRefused(origins: [String]) async throws {
        let records = Mutex<[AccessRecord]>([])
        try await withEcho { record in
            records.withLock { $0.append(record) }
        } _: { engine, url in
            await #expect(throws: WebSocketClientError.webSocket(.refused(status: 403))) {
                try await Self.exchange(with: url, over: engine, origins: origins)
            }
            try await poll { records.withLock { $0.map(\.status) } == [403] }
        }
    }

    @Test func connectionsAboveTheLimitAreRefused() async throws {
        let pauses = Mutex<[String]>([])
        try await withEcho(connections: 2) { engine, url in
            var options = WebSocketOptions()
            options.onResponse = { head in
                let values = head.values(of: "Retry-After")
                pauses.withLock { $0 += values }
            }
            let fixed = options
            let refusal = WebSocketClientError.webSocket(.refused(status: 503))
            try await WebSocket.withConnection(to: url, over: engine) { _, _ in
                try await WebSocket.withConnection(to: url, over: engine) { _, _ in
                    for _ in 0..<3 {
                        await #expect(throws: refusal) {
                            try await WebSocket.withConnection(
                                to: url,
                                over: engine,
                                options: fixed
                            ) { _, _ in }
                        }
                    }
                }
                // The ended connection counts no longer against the limit, and refused ones never do.
                try await poll {
                    do {
                        try await Self.exchange(with: url, over: engine, origins: [])
                        return true
                    } catch {
                        #expect(error as? WebSocketClientError == refusal)
                        return false
                    }
                }
            }
        }
        #expect(pauses.withLock { $0 } == ["1", "1", "1"])
    }

    @Test func aRefusedRequestDoesNotCount() async throws {
        try await withEcho(connections: 1) { engine, url in
            for _ in 0..<3 {
                await #expect(throws: WebSocketClientError.webSocket(.refused(status: 403))) {
                    try await Self.exchange(with: url, over: engine, origins: ["null"])
                }
            }
            try await Self.exchange(with: url, over: engine, origins: [])
        }
    }
}

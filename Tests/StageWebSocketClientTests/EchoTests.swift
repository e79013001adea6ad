import StageModel
import StageOrigin
import StageTesting
import StageTransfer
import StageWebSocket
import StageWebSocketClient
import Synchronization
import Testing

/// The client and the echo of the origin together.
@Suite(.directory) struct EchoTests {
    @Test func messagesComeBack() async throws {
        let records = Mutex<[AccessRecord]>([])
        try await withEcho { record in
            records.withLock { $0.append(record) }
        } _: { engine, url in
            var options = WebSocketOptions()
            // A busy machine may delay the close frame of the echo.
            options.closeTimeout = .seconds(300)
            try await WebSocket.withConnection(to: url, over: engine, options: options) {
                messages,
                writer in
                var iterator = messages.makeAsyncIterator()
                try await writer.ping()
                for message in [
                    WebSocketMessage.text("ü"), .binary([]),
                    .binary([UInt8](repeating: 7, count: 200_000)),
                ] {
                    try await writer.send(message)
                    #expect(try await iterator.next() == message)
                }
                try await writer.close(code: .goingAway, reason: "done")
                #expect(try await iterator.next() == nil)
                #expect(messages.close == WebSocketClose(code: .goingAway))
                await #expect(throws: WebSocketClientError.webSocket(.closed)) {
                    try await writer.send("late")
                }
            }
            // The record is written when the connection has ended.
            try await poll { records.withLock { !$0.isEmpty } }
            let record = try #require(records.withLock { $0.first })
            #expect(record.path == "/.stagepack/echo")
            #expect(record.status == 101)
        }
    }

    @Test func aRequestWithoutAnUpgradeIsRefused() async throws {
        try await withEcho { engine, url in
            let http = "http" + url.dropFirst(2)
            await #expect(throws: TransferError.refused(url: http, status: 426)) {
                _ = try await engine.fetch(FetchRequest(mirrors: [http], limit: .kibibytes(1)))
            }
            // A similar path is a different one.
            await #expect(throws: TransferError.refused(url: http + "s", status: 404)) {
                _ = try await engine.fetch(
                    FetchRequest(mirrors: [http + "s"], limit: .kibibytes(1))
                )
            }
        }
    }

    @Test func aMessageAboveTheLimitEndsTheConnection() async throws {
        try await withEcho { engine, url in
            var options = WebSocketOptions()
            options.limits = WebSocketLimits(messageSize: 10)
            await #expect(throws: WebSocketClientError.webSocket(.tooLarge(limit: 10))) {
                try await WebSocket.withConnection(to: url, over: engine, options: options) {
                    messages,
                    writer in
                    try await writer.send("more than ten bytes")
                    for try await _ in messages {}
                }
            }
        }
    }

    @Test(.apart) func theEchoClosesAConnectionOnWhichNothingMoves() async throws {
        let start = ContinuousClock.now
        try await withEcho(idleLimit: .milliseconds(200)) { engine, url in
            _ = await #expect(throws: WebSocketClientError.lost) {
                try await WebSocket.withConnection(to: url, over: engine) { messages, _ in
                    for try await _ in messages {}
                }
            }
        }
        #expect(ContinuousClock.now - start < .seconds(25))
    }

    @Test func theEchoHoldsNoMoreThanAPeerTakes() async throws {
        // The client reads no responses: then the echo reads no more messages, and ends after its timeout.
        try await withEcho(idleLimit: .milliseconds(500)) { engine, url in
            let sent = Mutex(0)
            await #expect(throws: (any Error).self) {
                var options = WebSocketOptions()
                options.compression = nil
                options.pingInterval = nil
                try await WebSocket.withConnection(to: url, over: engine, options: options) {
                    _,
                    writer in
                    let message = WebSocketMessage.binary([UInt8](repeating: 1, count: 1 << 20))
                    while true {
                        try await writer.send(message)
                        sent.withLock { $0 += 1 }
                    }
                }
            }
            // The count of messages covers the sockets' buffers and two messages.
            #expect(sent.withLock { $0 } < 64)
        }
    }

    @Test func aConnectionDoesNotOutliveItsScope() async throws {
        try await withEcho { engine, url in
            let writer = try await WebSocket.withConnection(to: url, over: engine) { _, writer in
                writer
            }
            await #expect(throws: WebSocketClientError.webSocket(.closed)) {
                try await writer.send("late")
            }
        }
    }

    @Test func tasksThatSendTogetherDoNotMixTheirFrames() async throws {
        try await withEcho { engine, url in
            try await WebSocket.withConnection(to: url, over: engine) { messages, writer in
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for number in 0..<20 {
                        group.addTask {
                            let bytes = [UInt8](repeating: UInt8(number), count: 50_000)
                            try await writer.send(.binary(bytes))
                        }
                    }
                    var numbers: Set<UInt8> = []
                    for try await message in messages {
                        guard case .binary(let bytes) = message else { continue }
                        #expect(Set(bytes).count == 1)
                        numbers.formUnion(bytes.prefix(1))
                        if numbers.count == 20 { break }
                    }
                    try await group.waitForAll()
                }
            }
        }
    }
}

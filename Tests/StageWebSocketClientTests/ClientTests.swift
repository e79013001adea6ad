import StageTesting
import StageTransfer
import StageWebSocket
import StageWebSocketClient
import Synchronization
import Testing

/// The client, with servers that behave as each test requires.
@Suite(.server) struct ClientTests {
    /// Sets the server to accept the handshake and then follow a script; returns the URL.
    private static func serve(
        _ target: String = "/socket",
        _ script: @escaping @Sendable (Wire) -> Void
    ) -> String {
        TestServer.current.answer(
            target,
            with: .script { wire in
                wire.send(wire.request.webSocketAnswer())
                script(wire)
            }
        )
        return "ws://127.0.0.1:\(TestServer.current.port)\(target)"
    }

    /// Reads all messages of a server.
    private static func read(
        _ url: String,
        _ configuration: TransferConfiguration = TransferConfiguration(),
        _ change: (inout WebSocketOptions) -> Void = { _ in }
    ) async throws -> [WebSocketMessage] {
        var options = WebSocketOptions()
        change(&options)
        let fixed = options
        return try await withEngine(configuration) { engine in
            try await WebSocket.withConnection(to: url, over: engine, options: fixed) {
                messages,
                _ in
                var result: [WebSocketMessage] = []
                for try await message in messages { result.append(message) }
                return result
            }
        }
    }

    @Test func framesThatComeWithTheHandshakeAreRead() async throws {
        TestServer.current.answer(
            "/socket",
            with: .script { wire in
                wire.send(wire.request.webSocketAnswer() + [0x81, 1, 0x61, 0x88, 2, 3, 0xE8])
                wire.waitForEnd()
            }
        )
        let url = "ws://127.0.0.1:\(TestServer.current.port)/socket"
        #expect(try await Self.read(url) == [.text("a")])
    }

    @Test func anEndWithoutACloseFrameIsAnError() async throws {
        let url = Self.serve { wire in wire.send([0x81, 1, 0x61]) }
        await #expect(throws: WebSocketClientError.lost) { try await Self.read(url) }
    }

    @Test func aServerThatRefusesIsAnError() async throws {
        TestServer.current.answer("/socket", with: .status(403))
        let url = "ws://127.0.0.1:\(TestServer.current.port)/socket"
        await #expect(throws: WebSocketClientError.webSocket(.refused(status: 403))) {
            try await Self.read(url)
        }
    }

    @Test(.apart) func aHandshakeWithoutAnswerEndsAtItsLimit() async throws {
        TestServer.current.answer("/socket", with: .script { $0.waitForEnd() })
        let url = "ws://127.0.0.1:\(TestServer.current.port)/socket"
        let limit = Duration.milliseconds(200)
        let start = ContinuousClock.now
        await #expect(throws: WebSocketClientError.slowHandshake(limit: limit)) {
            try await Self.read(url) { $0.handshakeTimeout = limit }
        }
        #expect(ContinuousClock.now - start < .seconds(25))
    }

    @Test(.timeLimit(.minutes(5))) func aServerThatIsGoneIsFoundByPings() async throws {
        // The connection stays open until the client ends it, and no bytes arrive.
        let url = Self.serve { wire in while !wire.receive().isEmpty {} }
        let interval = Duration.milliseconds(200)
        await #expect(throws: WebSocketClientError.silent(limit: interval * 2)) {
            try await Self.read(url) { $0.pingInterval = interval }
        }
    }

    /// Content that exceeds the buffers of two sockets.
    private static let long = [UInt8](repeating: 1, count: 24 << 20)

    /// Multipliers of the time limits of a test and of the pauses of its server; a test tries them in turn.
    ///
    /// On a busy machine, the server may take no bytes for longer than the first limit.
    private static let factors = [1, 10]

    /// Reads a long message in `factor` times two seconds or more, without sending a byte, and then the following bytes
    /// up to `end`.
    private static func takeLongMessage(_ wire: Wire, to end: Int, slowedBy factor: Int) -> Bool {
        var count = 0
        while count < end {
            let more = wire.receive()
            guard !more.isEmpty else { return false }
            count += more.count
            if count < long.count * 2 / 3 { wire.pause(milliseconds: UInt32(8 * factor)) }
        }
        return true
    }

    @Test(.apart) func aServerThatTakesALongMessageIsNotSilent() async throws {
        for factor in Self.factors where try await Self.sendLongMessage(slowedBy: factor) {
            return
        }
        Issue.record("the server counts as silent")
    }

    /// Sends a long message; returns `false` if the server counts as silent.
    private static func sendLongMessage(slowedBy factor: Int) async throws -> Bool {
        let url = Self.serve { wire in
            guard Self.takeLongMessage(wire, to: Self.long.count, slowedBy: factor) else { return }
            wire.send([0x88, 0])
            // Reads the rest: with unread bytes, the connection would end with a reset.
            wire.end()
        }
        do {
            try await withEngine { engine in
                var options = WebSocketOptions()
                options.pingInterval = .milliseconds(500 * factor)
                try await WebSocket.withConnection(to: url, over: engine, options: options) {
                    messages,
                    writer in
                    try await writer.send(.binary(Self.long))
                    for try await _ in messages {}
                }
            }
            return true
        } catch WebSocketClientError.silent {
            return false
        }
    }

    @Test(.apart) func theLimitOfTheCloseHandshakeBeginsAfterItsFrame() async throws {
        for factor in Self.factors where try await Self.closeDuringLongMessage(slowedBy: factor) {
            return
        }
        Issue.record("the server does not get the whole message")
    }

    /// Ends a connection while it sends a long message; returns whether the server gets the message and the close frame.
    private static func closeDuringLongMessage(slowedBy factor: Int) async throws -> Bool {
        let isWhole = Mutex<Bool?>(nil)
        let hasBegun = Mutex(false)
        let url = Self.serve { wire in
            hasBegun.withLock { $0 = !wire.receive().isEmpty }
            // The close frame has eight bytes, and the head of the message has fourteen; the first piece was read before.
            let end = Self.long.count + 22 - (64 << 10)
            let hasAll = Self.takeLongMessage(wire, to: end, slowedBy: factor)
            isWhole.withLock { $0 = hasAll }
            guard hasAll else { return }
            wire.send([0x88, 0])
            wire.end()
        }
        try await withEngine { engine in
            var options = WebSocketOptions()
            options.closeTimeout = .milliseconds(500 * factor)
            options.pingInterval = nil
            try await WebSocket.withConnection(to: url, over: engine, options: options) {
                _,
                writer in
                // The message is still being sent when the scope ends.
                Task { try? await writer.send(.binary(Self.long)) }
                try await poll { hasBegun.withLock { $0 } }
            }
        }
        // The server may still be reading what the client has sent.
        return try await pollForValue { isWhole.withLock { $0 } }
    }

    @Test(.apart) func theCloseHandshakeEndsAtItsLimit() async throws {
        // The server responds to no close frame, and the connection stays open until the client ends it.
        let url = Self.serve { wire in while !wire.receive().isEmpty {} }
        let start = ContinuousClock.now
        try await withEngine { engine in
            var options = WebSocketOptions()
            options.closeTimeout = .milliseconds(200)
            try await WebSocket.withConnection(to: url, over: engine, options: options) { _, _ in }
        }
        #expect(ContinuousClock.now - start < .seconds(25))
    }

    @Test func cancellationEndsTheConnection() async throws {
        let url = Self.serve { wire in
            wire.send([0x81, 1, 0x61])
            wire.waitForEnd()
        }
        let (begun, begin) = AsyncStream.makeStream(of: Void.self)
        await #expect(throws: WebSocketClientError.cancelled) {
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask {
                    try await withEngine { engine in
                        try await WebSocket.withConnection(to: url, over: engine) { messages, _ in
                            for try await _ in messages { begin.yield() }
                        }
                    }
                }
                for await _ in begun { break }
                group.cancelAll()
                try await group.waitForAll()
            }
        }
    }

    @Test func aServerThatSendsWithoutEndIsHeldUp() async throws {
        let sent = Mutex(0)
        let url = Self.serve { wire in
            let frame: [UInt8] = [0x82, 127, 0, 0, 0, 0, 0, 0x10, 0, 0]
            let message = frame + [UInt8](repeating: 1, count: 1 << 20)
            while wire.send(message) { sent.withLock { $0 += 1 } }
        }
        try await withEngine { engine in
            var options = WebSocketOptions()
            options.closeTimeout = .milliseconds(100)
            try await WebSocket.withConnection(to: url, over: engine, options: options) {
                messages,
                _ in
                var iterator = messages.makeAsyncIterator()
                _ = try await iterator.next()
                // The client can send until the buffers of the sockets are full, but no further.
                let count = try await pollUntilUnchanged { sent.withLock { $0 } }
                #expect(count < 64)
            }
        }
    }

    @Test func credentialsAndFieldsAreSent() async throws {
        let url = Self.serve("/socket?a=b%20c") { wire in
            wire.send([0x88, 0])
            wire.waitForEnd()
        }
        var configuration = TransferConfiguration()
        configuration.bearerTokens["127.0.0.1"] = BearerToken("secret")
        _ = try await Self.read(url, configuration) {
            $0.fields = [WebSocketField(name: "Origin", value: "http://example.net")]
        }
        let head = try #require(TestServer.current.requests.first)
        #expect(head.target == "/socket?a=b%20c")
        #expect(head["authorization"] == "Bearer secret")
        #expect(head["origin"] == "http://example.net")
        #expect(head["host"] == "127.0.0.1:\(TestServer.current.port)")
    }

    @Test func aPongAnswersThePingsBeforeItsOwn() async throws {
        let url = Self.serve { wire in
            // Frames of 14 bytes: two of a header, four of a mask and eight of a number.
            var bytes: [UInt8] = []
            while bytes.count < 28 {
                let more = wire.receive()
                if more.isEmpty { return }
                bytes += more
            }
            let (mask, payload) = (bytes[16..<20], bytes[20..<28])
            wire.send([0x8A, 8] + zip(payload, mask + mask).map { $0 ^ $1 })
            wire.waitForEnd()
        }
        try await withEngine { engine in
            try await WebSocket.withConnection(to: url, over: engine) { _, writer in
                async let first: Void = writer.ping()
                async let second: Void = writer.ping()
                _ = try await (first, second)
            }
        }
    }

    @Test func theHeadOfTheAnswerIsHandedOver() async throws {
        let lines = Mutex<[String]>([])
        let url = Self.serve { wire in wire.send([0x88, 0]) }
        _ = try await Self.read(url) { options in
            options.onResponse = { head in lines.withLock { $0.append(head.line) } }
        }
        TestServer.current.answer("/closed", with: .status(403))
        let other = "ws://127.0.0.1:\(TestServer.current.port)/closed"
        await #expect(throws: WebSocketClientError.self) {
            try await Self.read(other) { options in
                options.onResponse = { head in lines.withLock { $0.append(head.line) } }
            }
        }
        #expect(lines.withLock { $0.map { $0.split(separator: " ")[1] } } == ["101", "403"])
    }

    @Test func theWordsOfAnErrorAreAPersons() {
        let errors: [(WebSocketClientError, String)] = [
            (.lost, "the server ended the connection without a close frame"),
            (
                .webSocket(.refused(status: 403)),
                "the server responded with status 403, expected 101"
            ),
            (.silent(limit: .seconds(60)), "the server sent nothing for 60 seconds"),
        ]
        for (error, words) in errors { #expect("\(error)" == words) }
    }
}

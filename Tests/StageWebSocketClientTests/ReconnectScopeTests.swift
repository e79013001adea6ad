import StageTesting
import StageTransfer
import StageWebSocket
import StageWebSocketClient
import Synchronization
import Testing

/// Writers, readers and scopes of connections that reconnect.
@Suite(.server) struct ReconnectScopeTests {
    /// Messages that servers received.
    private final class Received: Sendable {
        private let messages = Mutex<[WebSocketMessage]>([])
        var all: [WebSocketMessage] { messages.withLock { $0 } }

        func read(_ peer: inout WebSocketPeer) {
            while let event = peer.next() {
                if case .message(let message) = event {
                    messages.withLock { $0.append(message) }
                    peer.send(message)
                }
            }
        }
    }

    @Test func aWriteWithoutAConnectionFailsAtOnceOrAtItsLimit() async throws {
        serve(.status(503))
        try await withSocket(quickPolicy { $0.initialDelay = .seconds(3600) }) { events, writer in
            var iterator = events.makeAsyncIterator()
            guard case .disconnected = try await iterator.next() else {
                Issue.record("expected a failed attempt")
                return
            }
            await #expect(throws: WebSocketClientError.notConnected) { try await writer.send("a") }
            let start = ContinuousClock.now
            await #expect(throws: WebSocketClientError.notConnected) {
                try await writer.send("a", waitingForConnection: .milliseconds(200))
            }
            #expect(ContinuousClock.now - start >= .milliseconds(200))
        }
    }

    @Test func aWriteWaitsForTheNextConnectionAndIsSentOnce() async throws {
        let received = Received()
        let gate = Gate()
        let last = Answer.webSocket { peer in received.read(&peer) }.with { answer in
            answer.prepare = { gate.wait() }
        }
        serve(.webSocket { _ in }, last)
        try await withSocket { events, writer in
            var iterator = events.makeAsyncIterator()
            _ = try await iterator.next()
            guard case .disconnected = try await iterator.next() else {
                Issue.record("expected the end of the first connection")
                return
            }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<10 {
                    group.addTask {
                        try await writer.send("\(number)", waitingForConnection: .seconds(300))
                    }
                }
                await #expect(throws: WebSocketClientError.notConnected) {
                    try await writer.send("no")
                }
                gate.open()
                guard case .connected = try await iterator.next() else {
                    Issue.record("expected the second connection")
                    return
                }
                var echoes: [WebSocketMessage] = []
                while echoes.count < 10, case .message(let echo) = try await iterator.next() {
                    echoes.append(echo)
                }
                try await group.waitForAll()
                #expect(Set(echoes) == Set((0..<10).map { .text("\($0)") }))
                #expect(received.all == echoes)
            }
        }
    }

    @Test func limitsMayBeAsLongAsADuration() async throws {
        let longest = Duration.seconds(Int64.max)
        let gate = Gate()
        serve(Answer.webSocket { peer in peer.echo() }.waiting(for: gate))
        var options = WebSocketOptions()
        options.handshakeTimeout = longest
        options.closeTimeout = longest
        options.pingInterval = longest
        var configuration = TransferConfiguration()
        configuration.connectTimeout = longest
        let fixed = (options, configuration)
        try await withEngine(fixed.1) { engine in
            try await WebSocket.withReconnectingConnection(
                to: socketURL,
                over: engine,
                options: fixed.0,
                policy: quickPolicy { $0.retryTimeLimit = longest }
            ) { events, writer in
                async let sent: Void = writer.send("a", waitingForConnection: longest)
                gate.open()
                var messages: [WebSocketMessage] = []
                for try await case .message(let message) in events {
                    messages.append(message)
                    break
                }
                try await sent
                #expect(messages == [.text("a")])
            }
        }
    }

    @Test func aConnectionThatEndedUnseenTakesNothing() async throws {
        // The reader has not requested a message since the connection opened, so it does not notice its end.
        let ends = Mutex(0)
        serve(
            .webSocket { peer in
                peer.close(1001)
                peer.waitForEnd()
                ends.withLock { $0 += 1 }
            },
            .webSocket { peer in peer.echo() }
        )
        try await withSocket { events, writer in
            var iterator = events.makeAsyncIterator()
            guard case .connected(let first) = try await iterator.next() else {
                Issue.record("expected a connection")
                return
            }
            try await poll {
                do {
                    try await first.writer.ping()
                    return false
                } catch {
                    return true
                }
            }
            await #expect(throws: WebSocketClientError.notConnected) { try await writer.send("a") }
            #expect(TestServer.current.connectionCount == 1)
            async let sent: Void = writer.send("b", waitingForConnection: .seconds(300))
            guard case .disconnected = try await iterator.next(),
                case .connected = try await iterator.next(),
                case .message(.text("b")) = try await iterator.next()
            else {
                Issue.record("expected a new connection")
                return
            }
            try await sent
            await #expect(throws: WebSocketClientError.self) { try await first.writer.send("c") }
        }
    }

    @Test func aReaderThatDoesNotReadHoldsTheServerUp() async throws {
        let sent = Mutex(0)
        serve(
            .webSocket { peer in
                let message = [UInt8](repeating: 1, count: 1 << 19)
                for _ in 0..<200 {
                    peer.send(.binary(message))
                    sent.withLock { $0 += 1 }
                }
            }
        )
        var options = WebSocketOptions()
        options.compression = nil
        try await withSocket(quickPolicy(), options) { events, _ in
            var iterator = events.makeAsyncIterator()
            _ = try await iterator.next()
            _ = try await iterator.next()
            let count = try await pollUntilUnchanged { sent.withLock { $0 } }
            // The count of messages covers the sockets' buffers and two messages.
            #expect(count < 100)
        }
    }

    @Test func theEndOfTheScopeClosesTheConnection() async throws {
        let events = Mutex<[WebSocketEvent]>([])
        serve(
            .webSocket { peer in
                while let event = peer.next() { events.withLock { $0.append(event) } }
            }
        )
        let (writer, connection) = try await withSocket { events, writer in
            var iterator = events.makeAsyncIterator()
            guard case .connected(let connected) = try await iterator.next() else {
                throw WebSocketClientError.lost
            }
            try await writer.send("a")
            return (writer, connected.writer)
        }
        try await poll { events.withLock { $0.count } == 2 }
        #expect(
            events.withLock { $0 }
                == [.message(.text("a")), .close(WebSocketClose(code: .normalClosure))]
        )
        await #expect(throws: WebSocketClientError.cancelled) { try await writer.send("b") }
        await #expect(throws: WebSocketClientError.webSocket(.closed)) {
            try await connection.send("b")
        }
        #expect(TestServer.current.connectionCount == 1)
    }

    /// States in which a scope is cancelled.
    enum Phase: String, CaseIterable {
        case handshake, delay, reading, writing
    }

    @Test(arguments: Phase.allCases) func cancellationEndsAtOnce(phase: Phase) async throws {
        switch phase {
        case .handshake: serve(.script { $0.waitForEnd() })
        case .delay, .writing: serve(.status(503))
        case .reading: serve(.webSocket { peer in peer.waitForEnd() })
        }
        let policy = quickPolicy { policy in
            policy.initialDelay = .seconds(7200)
            policy.maximumDelay = .seconds(7200)
        }
        var options = WebSocketOptions()
        options.handshakeTimeout = .seconds(3600)
        let fixed = options
        let (begun, begin) = AsyncStream.makeStream(of: Void.self)
        await #expect(throws: WebSocketClientError.cancelled) {
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask {
                    try await withSocket(policy, fixed) { events, writer in
                        if phase == .handshake { begin.yield() }
                        for try await event in events {
                            if case .disconnected = event, phase == .writing {
                                begin.yield()
                                try await writer.send("a", waitingForConnection: .seconds(3600))
                            }
                            begin.yield()
                        }
                    }
                }
                _ = await begun.first { _ in true }
                if phase == .handshake {
                    try await poll { !TestServer.current.requests.isEmpty }
                }
                group.cancelAll()
                try await group.waitForAll()
            }
        }
        #expect(TestServer.current.connectionCount == 1)
    }

    @Test func aReaderThatIsCancelledLosesNoEvent() async throws {
        let gate = Gate()
        serve(
            .webSocket { peer in
                gate.wait()
                peer.send(.text("a"))
                peer.waitForEnd()
            }
        )
        try await withSocket { events, _ in
            var iterator = events.makeAsyncIterator()
            _ = try await iterator.next()
            await #expect(throws: WebSocketClientError.cancelled) {
                try await withThrowingTaskGroup(of: Void.self) { group in
                    group.addTask {
                        var iterator = events.makeAsyncIterator()
                        _ = try await iterator.next()
                    }
                    group.cancelAll()
                    try await group.waitForAll()
                }
            }
            gate.open()
            guard case .message(.text("a")) = try await iterator.next() else {
                Issue.record("expected the message")
                return
            }
        }
    }

    @Test func theBodysErrorEndsTheScope() async throws {
        struct Failure: Error {}
        serve(.webSocket { peer in peer.waitForEnd() })
        await #expect(throws: Failure.self) {
            try await withSocket { events, _ in
                for try await _ in events { throw Failure() }
            }
        }
    }

    @Test func writersLearnOfTheEnd() async throws {
        serve(.status(403))
        try await withSocket { _, writer in
            let error = WebSocketClientError.webSocket(.refused(status: 403))
            await #expect(throws: error) {
                try await writer.send("a", waitingForConnection: .seconds(300))
            }
        }
    }
}

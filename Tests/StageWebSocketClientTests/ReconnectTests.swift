import StageSystem
import StageTesting
import StageTransfer
import StageWebSocket
import StageWebSocketClient
import Synchronization
import Testing

/// Connections that reconnect, and their events.
@Suite(.server, .directory) struct ReconnectTests {
    private static let lost = "the server ended the connection without a close frame"

    @Test func aLostConnectionIsReopened() async throws {
        serve(
            .webSocket { peer in peer.send(.text("a")) },
            .webSocket { peer in
                peer.send(.text("b"))
                peer.close(1000)
                peer.waitForEnd()
            }
        )
        let events = EventLines()
        try await events.read()
        #expect(
            events.lines == ["connected", "a", "\(Self.lost), 1 in a row", "connected", "b", "end"]
        )
    }

    @Test(.timeLimit(.minutes(5))) func aHalfOpenConnectionIsReopened() async throws {
        serve(
            // Responds to no ping, until the client has ended the connection.
            .webSocket { peer in while !peer.wire.receive().isEmpty {} },
            .webSocket { peer in
                peer.close(1000)
                peer.waitForEnd()
            }
        )
        var options = WebSocketOptions()
        options.pingInterval = .milliseconds(200)
        let events = EventLines()
        try await events.read(quickPolicy(), options)
        let silence = "the server sent nothing for 0.4 seconds"
        #expect(events.lines.prefix(2) == ["connected", "\(silence), 1 in a row"])
        #expect(events.lines.suffix(2) == ["connected", "end"])
        // On a busy machine, the server of a later connection may be silent for as long.
        #expect(events.lines.dropLast().allSatisfy { $0 == "connected" || $0.hasPrefix(silence) })
    }

    @Test func delaysGrowForAServerThatDropsItsConnections() async throws {
        serve(.webSocket { _ in })
        let policy = quickPolicy { policy in
            policy.initialDelay = .milliseconds(8)
            policy.maximumDelay = .milliseconds(50)
            policy.maximumAttempts = 6
        }
        let events = EventLines()
        try await events.read(policy)
        let longest = [8, 16, 32, 50, 50].map { Duration.milliseconds($0) }
        #expect(events.retryDelays.count == longest.count)
        for (delay, longest) in zip(events.retryDelays, longest) {
            #expect(delay >= longest / 2 && delay <= longest)
        }
        #expect(events.lines.last == "error: no connection lasted in 6 attempts: \(Self.lost)")
        #expect(TestServer.current.connectionCount == 6)
    }

    @Test func aConnectionThatLastsEndsTheRowOfFailures() async throws {
        serve(
            .status(503),
            .status(503),
            .webSocket { _ in },
            .status(503),
            .webSocket { peer in
                peer.close(1000)
                peer.waitForEnd()
            }
        )
        let events = EventLines()
        try await events.read(quickPolicy { $0.minimumUptime = .zero })
        let refusal = "the server responded with status 503, expected 101"
        #expect(
            events.lines == [
                "\(refusal), 1 in a row", "\(refusal), 2 in a row", "connected",
                "\(Self.lost), 0 in a row", "\(refusal), 1 in a row", "connected", "end",
            ]
        )
    }

    @Test(arguments: [200, 302, 400, 401, 403, 404, 410, 426, 501, 505])
    func aRefusalThatStaysIsFinal(status: Int) async throws {
        serve(.status(status))
        let events = EventLines()
        try await events.read()
        #expect(
            events.lines == ["error: the server responded with status \(status), expected 101"]
        )
        #expect(TestServer.current.requests.count == 1)
    }

    @Test(arguments: [408, 425, 429, 500, 502, 503, 504, 521])
    func aRefusalThatPassesIsNotFinal(status: Int) async throws {
        serve(
            .status(status),
            .webSocket { peer in
                peer.close(1000)
                peer.waitForEnd()
            }
        )
        let events = EventLines()
        try await events.read()
        #expect(events.lines.suffix(2) == ["connected", "end"])
        #expect(TestServer.current.requests.count == 2)
    }

    @Test(arguments: [429, 503]) func theServerSaysHowLongToWait(status: Int) async throws {
        serve(
            .status(status).with { $0.fields["Retry-After"] = "1" },
            .webSocket { peer in
                peer.close(1000)
                peer.waitForEnd()
            }
        )
        let events = EventLines()
        let start = ContinuousClock.now
        try await events.read()
        #expect(ContinuousClock.now - start >= .seconds(1))
        #expect(events.retryDelays.count == 1)
        #expect(events.retryDelays.allSatisfy { $0 >= .milliseconds(1005) && $0 < .seconds(2) })
    }

    @Test func aServerThatAsksForTooLongHasRefused() async throws {
        serve(
            .status(503).with {
                $0.fields["Retry-After"] = "Wed, 25 Nov 2026 08:00:00 GMT"
                $0.fields["Date"] = "Wed, 25 Nov 2026 07:00:00 GMT"
            }
        )
        let events = EventLines()
        try await events.read(quickPolicy { $0.maximumRetryAfter = .seconds(3599) })
        #expect(events.lines == ["error: the server responded with status 503, expected 101"])
    }

    @Test(arguments: [1002, 1003, 1007, 1008, 1009, 1010] as [UInt16])
    func aCloseCodeThatStaysIsFinal(code: UInt16) async throws {
        serve(
            .webSocket { peer in
                peer.close(code, reason: "why")
                peer.waitForEnd()
            }
        )
        let events = EventLines()
        try await events.read()
        #expect(
            events.lines == [
                "connected", "error: the server closed the connection with code \(code): why",
            ]
        )
    }

    @Test(arguments: [1001, 1011, 1012, 1013, 4000, nil] as [UInt16?])
    func aCloseCodeThatPassesIsNotFinal(code: UInt16?) async throws {
        serve(
            .webSocket { peer in
                peer.close(code)
                peer.waitForEnd()
            },
            .webSocket { peer in
                peer.close(1000)
                peer.waitForEnd()
            }
        )
        let events = EventLines()
        try await events.read()
        let words = code.map { "with code \($0)" } ?? "without a code"
        #expect(
            events.lines == [
                "connected", "the server closed the connection \(words), 1 in a row", "connected",
                "end",
            ]
        )
    }

    @Test func thePolicySaysWhichCodesAreFinal() async throws {
        let closing = Answer.webSocket { peer in
            peer.close(1000)
            peer.waitForEnd()
        }
        let last = Answer.webSocket { peer in
            peer.close(4001)
            peer.waitForEnd()
        }
        serve(closing, last)
        let events = EventLines()
        try await events.read(quickPolicy { $0.finalCloseCodes = [CloseCode(rawValue: 4001)] })
        #expect(
            events.lines == [
                "connected", "the server closed the connection with code 1000, 1 in a row",
                "connected",
                "error: the server closed the connection with code 4001",
            ]
        )
    }

    @Test func aFrameThatBreaksTheProtocolIsFinal() async throws {
        serve(
            .webSocket { peer in
                peer.wire.send([0x83, 0])
                peer.waitForEnd()
            }
        )
        let events = EventLines()
        try await events.read()
        #expect(
            events.lines == [
                "connected", "error: the peer sent an invalid frame: opcode 3 is reserved",
            ]
        )
    }

    @Test func aCertificateThatCannotBeVerifiedIsFinal() async throws {
        let front = try await TLSFront(
            port: TestServer.current.port,
            below: try TemporaryDirectory.required().path
        )
        let url = "wss" + front.baseURL.dropFirst(5) + "/socket"
        let events = EventLines()
        try await events.read(to: url)
        #expect(events.lines.count == 1)
        #expect(events.lines.first?.contains("is not signed by an authority") == true)
    }

    /// No server listens at port 1; another test may reuse the port of a stopped server.
    private static let nowhere = "ws://127.0.0.1:1/socket"

    @Test func aServerThatIsNotThereIsTriedUntilTheTimeIsOver() async throws {
        let events = EventLines()
        try await events.read(to: Self.nowhere, quickPolicy { $0.retryTimeLimit = .seconds(1) })
        #expect(events.lines.last?.hasPrefix("error: no connection lasted in ") == true)
        #expect(events.lines.dropLast().allSatisfy { $0.contains(" failed: ") })
    }

    @Test func aServerThatIsNotThereIsTriedSoManyTimes() async throws {
        let events = EventLines()
        try await events.read(to: Self.nowhere, quickPolicy { $0.maximumAttempts = 3 })
        #expect(events.lines.count == 3)
        #expect(events.lines.last?.hasPrefix("error: no connection lasted in 3 attempts: ") == true)
    }

    @Test func anAttemptEndsWithTheTimeForAll() async throws {
        serve(.script { $0.waitForEnd() })
        let events = EventLines()
        try await events.read(quickPolicy { $0.retryTimeLimit = .milliseconds(300) })
        #expect(events.lines.count == 1)
        let start =
            "error: no connection lasted in 1 attempt: the opening handshake took longer than 0"
        #expect(events.lines.first?.hasPrefix(start) == true)
    }

    @Test func eachMessageComesOnceInOrder() async throws {
        let number = Mutex(0)
        serve(
            .webSocket { peer in
                let start = number.withLock { number in
                    defer { number += 1 }
                    return number * 5
                }
                for message in start..<start + 5 { peer.send(.text("\(message)")) }
                if start == 95 { peer.close(1000) } else { peer.wire.end() }
                peer.waitForEnd()
            }
        )
        let events = EventLines()
        try await events.read()
        #expect(events.lines.compactMap { Int($0) } == Array(0..<100))
        #expect(events.lines.filter { $0 == "connected" }.count == 20)
        #expect(events.lines.last == "end")
    }
}

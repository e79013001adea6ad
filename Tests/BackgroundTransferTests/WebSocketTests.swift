import BackgroundTransfer
import Foundation
import StageSystem
import StageTesting
import StageWebSocket
import Synchronization
import Testing

/// WebSocket tasks and a server that follows a script, or the echo of 'stagepack serve'.
@Suite(.directory, .server) struct WebSocketTests {
    /// The outcome of a call that is expected to fail.
    private static func failure(_ body: () async throws -> Void) async -> String {
        do {
            try await body()
            return "none"
        } catch {
            return name(error)
        }
    }

    /// Repeats `body` until it returns `true`, ten times at most.
    ///
    /// It returns `false` if the server's close frame came after its time limit of five seconds, as on a busy machine.
    private static func repeatUntilClosed(_ body: () async throws -> Bool) async throws {
        for _ in 0..<10 where try await body() {
            return
        }
        Issue.record("the server's close frame is not reported")
    }

    @Test func messagesComeBack() async throws {
        try await withEcho { url in
            try await Self.repeatUntilClosed { try await Self.exchangeMessages(with: url) }
        }
    }

    /// Sends messages to an echo, and closes the connection; returns whether the close frame of the echo came in time.
    private static func exchangeMessages(with url: URL) async throws -> Bool {
        try await withSession { session, recorder -> Bool in
            let task = session.webSocketTask(with: url)
            #expect(task.state == .suspended && task.taskIdentifier > 0)
            task.resume()
            let messages: [URLSessionWebSocketTask.Message] = [
                .string("ü"), .data(Data()), .data(Data(repeating: 7, count: 200_000)),
            ]
            for message in messages {
                try await task.send(message)
                #expect(try await task.receive() == message)
            }
            #expect(task.state == .running && task.closeCode == .invalid)
            #expect((task.response as? HTTPURLResponse)?.statusCode == 101)
            #expect(task.originalRequest?.url == url && task.currentRequest?.url == url)
            #expect(await session.allTasks == [task])
            task.cancel(with: .normalClosure, reason: nil)
            try await recorder.wait(for: "completed 1: well")
            guard recorder.lines.contains("closed 1: 1000 -") else { return false }
            #expect(
                recorder.lines == [
                    "created 1", "opened 1: -", "closed 1: 1000 -", "completed 1: well",
                ]
            )
            #expect(task.state == .completed && task.closeCode == .normalClosure)
            #expect(task.error == nil)
            return true
        }
    }

    @Test func callsBeforeTheHandshakeWaitForIt() async throws {
        try await withEcho { url in
            try await withSession { session, _ in
                let task = session.webSocketTask(with: url)
                let results = Mutex<[String]>([])
                let note = { @Sendable (line: String) in results.withLock { $0.append(line) } }
                task.receive { result in note("received \((try? result.get()) == .string("a"))") }
                task.send(.string("a")) { error in note("sent \(error == nil)") }
                task.sendPing { error in note("pong \(error == nil)") }
                #expect(results.withLock { $0.isEmpty })
                task.resume()
                try await poll { results.withLock { $0.count } == 3 }
                #expect(
                    results.withLock { Set($0) } == ["received true", "sent true", "pong true"]
                )
            }
        }
    }

    @Test func theDelegateReceivesTheSubprotocol() async throws {
        let url = try serve(subprotocols: ["chat.v2", "chat.v1"]) { _ = $0.next() }
        try await withSession { session, recorder in
            let task = session.webSocketTask(with: url, protocols: ["chat.v3", "chat.v1"])
            task.resume()
            try await recorder.wait(for: "opened 1: chat.v1")
            let request = try #require(TestServer.current.requests.first)
            #expect(request["sec-websocket-protocol"] == "chat.v3, chat.v1")
        }
    }

    @Test func pongHandlersAreCalledInOrder() async throws {
        let url = try serve { peer in
            _ = peer.next()
            peer.send(.text("begin"))
            peer.waitForEnd()
        }
        try await withSession { session, _ in
            let task = session.webSocketTask(with: url)
            task.resume()
            let pongs = Mutex<[Int]>([])
            try await task.send(.string("hello"))
            for number in 1...20 {
                task.sendPing { error in if error == nil { pongs.withLock { $0.append(number) } } }
            }
            #expect(try await task.receive() == .string("begin"))
            try await poll { pongs.withLock { $0.count } == 20 }
            #expect(pongs.withLock { $0 } == Array(1...20))
        }
    }

    @Test func theServerClosesWithACodeAndAReason() async throws {
        let url = try serve { peer in
            peer.send(.text("last"))
            peer.close(4001, reason: "über")
            peer.waitForEnd()
        }
        try await withSession { session, recorder in
            let task = session.webSocketTask(with: url)
            task.resume()
            #expect(try await task.receive() == .string("last"))
            #expect(await Self.failure { _ = try await task.receive() } == "POSIX ENOTCONN")
            #expect(await Self.failure { try await task.send(.string("")) } == "POSIX ENOTCONN")
            try await recorder.wait(for: "completed 1: well")
            #expect(recorder.lines.suffix(2) == ["closed 1: 4001 über", "completed 1: well"])
            #expect(task.closeCode == .other(4001))
            #expect(task.closeReason == Data("über".utf8))
        }
    }

    @Test(arguments: [(1005, "closed 1: 1005 -"), (1001, "closed 1: 1001 -")])
    func aCloseFrameMayHaveNoCode(code: UInt16, line: String) async throws {
        let url = try serve { peer in
            peer.close(code)
            peer.waitForEnd()
        }
        try await withSession { session, recorder in
            session.webSocketTask(with: url).resume()
            try await recorder.wait(for: line)
            try await recorder.wait(for: "completed 1: well")
        }
    }

    @Test func theApplicationClosesAfterWhatItHasHandedOver() async throws {
        let events = Mutex<[WebSocketEvent]>([])
        let url = try serve { peer in
            while let event = peer.next() { events.withLock { $0.append(event) } }
        }
        let close = WebSocketClose(code: CloseCode(rawValue: 4002), reason: "bye")
        try await Self.repeatUntilClosed {
            events.withLock { $0 = [] }
            let isClosed = try await Self.sendAndClose(to: url)
            try await poll { events.withLock { $0.count } == 2 }
            #expect(events.withLock { $0 } == [.message(.text("a")), .close(close)])
            return isClosed
        }
    }

    /// Sends a message, a close frame and another message; returns whether the server's close frame came in time.
    private static func sendAndClose(to url: URL) async throws -> Bool {
        try await withSession { session, recorder -> Bool in
            let task = session.webSocketTask(with: url)
            task.resume()
            try await recorder.wait(for: "opened 1: -")
            let results = Mutex<[String]>([])
            let note = { @Sendable (line: String) in results.withLock { $0.append(line) } }
            task.receive { result in
                if case .failure(let error) = result { note("received \(name(error))") }
            }
            task.send(.string("a")) { error in note("sent a: \(error.map(name) ?? "well")") }
            task.cancel(with: .other(4002), reason: Data("bye".utf8))
            task.send(.string("b")) { error in note("sent b: \(error.map(name) ?? "well")") }
            #expect(task.closeCode == .other(4002) && task.closeReason == Data("bye".utf8))
            try await recorder.wait(for: "completed 1: well")
            try await poll { results.withLock { $0.count } == 3 }
            #expect(
                results.withLock { Set($0) } == [
                    "received POSIX ENOTCONN", "sent a: well", "sent b: POSIX ENOTCONN",
                ]
            )
            guard recorder.lines.contains("closed 1: 4002 -") else { return false }
            #expect(recorder.lines.suffix(2) == ["closed 1: 4002 -", "completed 1: well"])
            return true
        }
    }

    @Test(.apart) func aServerThatReadsNothingIsGivenUpAfterTheCloseFrame() async throws {
        let gate = Gate()
        defer { gate.open() }
        // The connection stays open until the task has ended.
        TestServer.current.answer(
            "/socket",
            with: .script { wire in
                _ = WebSocketPeer(wire)
                gate.wait()
            }
        )
        let url = try URL(text: "ws://127.0.0.1:\(TestServer.current.port)/socket")
        try await withSession { session, recorder in
            let task = session.webSocketTask(with: url)
            task.resume()
            try await recorder.wait(for: "opened 1: -")
            let (results, result) = AsyncStream.makeStream(of: String.self)
            // The messages exceed the buffers of the sockets, and are random, since messages are compressed.
            let block = Data((0..<1 << 20).map { _ in UInt8.random(in: 0...255) })
            var bytes = Data()
            for _ in 0..<16 { bytes += block }
            task.send(.data(bytes)) { error in result.yield(error.map(name) ?? "well") }
            task.cancel(with: .goingAway, reason: nil)
            try await recorder.wait(for: "completed 1: well")
            #expect(await results.first { _ in true } == "POSIX ENOTCONN")
        }
    }

    @Test(.apart) func aCloseFrameComesAfterMessagesThatTakeLong() async throws {
        let count = 32 << 20
        let url = try serve { peer in
            var received = 0
            // The server reads for longer than the five seconds in which it must respond to a close frame.
            while received < count {
                let more = peer.wire.receive()
                if more.isEmpty { return }
                received += more.count
                if received < count * 3 / 4 { peer.wire.pause(milliseconds: 20) }
            }
            peer.close(1000)
            peer.waitForEnd()
        }
        try await withSession { session, recorder in
            let task = session.webSocketTask(with: url)
            task.resume()
            try await recorder.wait(for: "opened 1: -")
            let (results, result) = AsyncStream.makeStream(of: String.self)
            task.send(.data(Data(count: count))) { error in
                result.yield(error.map(name) ?? "well")
            }
            task.cancel(with: .goingAway, reason: nil)
            #expect(await results.first { _ in true } == "well")
            try await recorder.wait(for: "completed 1: well")
            #expect(recorder.lines.contains("closed 1: 1000 -"))
        }
    }

    @Test func cancellingSendsACloseFrameWithoutACode() async throws {
        let events = Mutex<[WebSocketEvent]>([])
        let url = try serve { peer in
            peer.send(.text("unread"))
            while let event = peer.next() { events.withLock { $0.append(event) } }
        }
        try await withSession { session, recorder in
            let task = session.webSocketTask(with: url)
            task.resume()
            try await recorder.wait(for: "opened 1: -")
            let failures = Mutex<[String]>([])
            let note = { @Sendable (error: (any Error)?) in
                failures.withLock { $0.append(error.map(name) ?? "none") }
            }
            for _ in 0..<3 {
                task.receive { result in
                    if case .failure(let error) = result { note(error) }
                }
            }
            task.cancel()
            task.cancel()
            #expect(task.state == .canceling || task.state == .completed)
            task.receive { result in
                if case .failure(let error) = result { note(error) }
            }
            task.send(.string("late"), completionHandler: note)
            task.sendPing(pongReceiveHandler: note)
            try await recorder.wait(for: "completed 1: URL -999")
            // One of the receives may have got the message.
            try await poll { failures.withLock { $0.count } >= 5 }
            #expect(Set(failures.withLock { $0 }) == ["URL -999"])
            #expect(recorder.lines.count == 3)
        }
        try await poll { !events.withLock { $0.isEmpty } }
        #expect(events.withLock { $0 } == [.close(WebSocketClose())])
    }

    @Test(arguments: [false, true])
    func aTaskThatWaitsForTheServersCloseFrameCanBeCancelled(byTheSession: Bool) async throws {
        let url = try serve { peer in
            // The peer does not respond to the close frame.
            while !peer.wire.receive().isEmpty {}
        }
        try await withSession { session, recorder in
            let task = session.webSocketTask(with: url)
            task.resume()
            try await recorder.wait(for: "opened 1: -")
            task.cancel(with: .goingAway, reason: nil)
            if byTheSession { session.invalidateAndCancel() } else { task.cancel() }
            try await recorder.wait(for: "completed 1: URL -999")
            if byTheSession { try await recorder.wait(for: "invalid: well") }
            #expect(task.closeCode == .goingAway)
        }
    }

    @Test func cancellingDiscardsMessagesThatACloseFrameWaitsFor() async throws {
        let (gate, hasEnded) = (Gate(), Flag())
        let url = try serve { peer in
            gate.wait()
            while !peer.wire.receive().isEmpty {}
            hasEnded.set()
        }
        try await withSession { session, recorder in
            let task = session.webSocketTask(with: url)
            task.resume()
            try await recorder.wait(for: "opened 1: -")
            let (results, result) = AsyncStream.makeStream(of: String.self)
            // The message exceeds the buffers of the sockets; this server accepts no compressed messages.
            task.send(.data(Data(count: 32 << 20))) { error in
                result.yield(error.map(name) ?? "well")
            }
            task.cancel(with: .goingAway, reason: nil)
            task.cancel()
            #expect(await results.first { _ in true } == "URL -999")
            try await recorder.wait(for: "completed 1: URL -999")
            gate.open()
            try await poll("the connection is open") { hasEnded.isSet }
        }
    }

    @Test func aMessageAboveTheLimitEndsTheTask() async throws {
        try await withEcho { url in
            try await withSession { session, recorder in
                let task = session.webSocketTask(with: url)
                #expect(task.maximumMessageSize == 1_048_576)
                task.maximumMessageSize = 10
                task.resume()
                try await task.send(.string("ten bytes!"))
                #expect(try await task.receive() == .string("ten bytes!"))
                try await task.send(.string("eleven byte"))
                #expect(await Self.failure { _ = try await task.receive() } == "POSIX EMSGSIZE")
                try await recorder.wait(for: "completed 1: POSIX EMSGSIZE")
            }
        }
    }

    @Test func aRefusedHandshakeLeavesItsResponse() async throws {
        let url = try URL(text: "ws://127.0.0.1:\(TestServer.current.port)/missing")
        try await withSession { session, recorder in
            let task = session.webSocketTask(with: url)
            let (sent, send) = AsyncStream.makeStream(of: String.self)
            task.send(.string("a")) { error in send.yield(error.map(name) ?? "none") }
            task.resume()
            #expect(await Self.failure { _ = try await task.receive() } == "URL -1011")
            #expect(await sent.first { _ in true } == "URL -1011")
            try await recorder.wait(for: "completed 1: URL -1011")
            #expect((task.response as? HTTPURLResponse)?.statusCode == 404)
            #expect(recorder.lines == ["created 1", "completed 1: URL -1011"])
        }
    }

    @Test func aServerThatIsNotThereEndsTheTask() async throws {
        try await withSession { session, recorder in
            session.webSocketTask(with: try URL(text: "ws://127.0.0.1:1/")).resume()
            try await recorder.wait(for: "completed 1: URL -1004")
        }
    }

    @Test func aConnectionThatBreaksEndsTheTask() async throws {
        let url = try serve { peer in peer.send(.text("a")) }
        try await withSession { session, recorder in
            let task = session.webSocketTask(with: url)
            task.resume()
            #expect(try await task.receive() == .string("a"))
            #expect(await Self.failure { _ = try await task.receive() } == "URL -1005")
            try await recorder.wait(for: "completed 1: URL -1005")
            #expect(task.closeCode == .invalid)
        }
    }

    @Test func aServerThatBreaksTheProtocolEndsTheTask() async throws {
        TestServer.current.answer(
            "/socket",
            with: .script { wire in
                _ = WebSocketPeer(wire)
                wire.send([0xFF, 0])
                wire.waitForEnd()
            }
        )
        let url = try URL(text: "ws://127.0.0.1:\(TestServer.current.port)/socket")
        try await withSession { session, recorder in
            session.webSocketTask(with: url).resume()
            try await recorder.wait(for: "completed 1: POSIX EPROTO")
        }
    }

    @Test(.apart, arguments: [false, true])
    func aSilentServerEndsTheTask(isOpen: Bool) async throws {
        TestServer.current.answer(
            "/socket",
            with: .script { wire in
                if isOpen { _ = WebSocketPeer(wire) }
                while !wire.receive().isEmpty {}
            }
        )
        let configuration = URLSessionConfiguration.ephemeral
        // The time that a handshake may take on a busy machine.
        configuration.timeoutIntervalForRequest = isOpen ? 15 : 0.4
        let url = try URL(text: "ws://127.0.0.1:\(TestServer.current.port)/socket")
        try await withSession(configuration) { session, recorder in
            session.webSocketTask(with: url).resume()
            try await recorder.wait(for: "completed 1: URL -1001")
            #expect(recorder.lines.contains("opened 1: -") == isOpen)
        }
    }

    @Test func aServerThatSendsWithoutEndIsHeldUp() async throws {
        let sent = Mutex(0)
        TestServer.current.answer(
            "/socket",
            with: .script { wire in
                _ = WebSocketPeer(wire)
                let frame: [UInt8] = [0x82, 127, 0, 0, 0, 0, 0, 0x10, 0, 0]
                let message = frame + [UInt8](repeating: 1, count: 1 << 20)
                while wire.send(message) { sent.withLock { $0 += 1 } }
            }
        )
        let url = try URL(text: "ws://127.0.0.1:\(TestServer.current.port)/socket")
        try await withSession { session, recorder in
            let task = session.webSocketTask(with: url)
            task.resume()
            _ = try await task.receive()
            // The task can send until the buffers of the sockets are full, but no further.
            let count = try await pollUntilUnchanged { sent.withLock { $0 } }
            #expect(count < 64)
        }
    }

    @Test func theHandshakeHasTheFieldsOfRequestAndSession() async throws {
        let url = try serve { _ = $0.next() }
        let configuration = URLSessionConfiguration.default
        configuration.httpAdditionalHeaders = ["X-One": "session", "X-Two": "session"]
        let storage = HTTPCookieStorage.sharedCookieStorage(
            forGroupContainerIdentifier: "\(try TemporaryDirectory.required().path)-sockets"
        )
        configuration.httpCookieStorage = storage
        let cookie = try #require(
            HTTPCookie(properties: [
                .name: "id", .value: "7", .domain: "127.0.0.1", .path: "/",
            ])
        )
        storage.setCookie(cookie)
        try await withSession(configuration) { session, recorder in
            var request = URLRequest(url: url)
            request.setValue("request", forHTTPHeaderField: "x-one")
            request.setValue("a , b", forHTTPHeaderField: "Sec-WebSocket-Protocol")
            request.setValue("other.example", forHTTPHeaderField: "Host")
            session.webSocketTask(with: request).resume()
            try await recorder.wait(for: "opened 1: -")
        }
        let head = try #require(TestServer.current.requests.first)
        #expect(head["x-one"] == "request" && head["x-two"] == "session")
        #expect(head["sec-websocket-protocol"] == "a, b")
        #expect(head["cookie"] == "id=7")
        #expect(head["host"] == "127.0.0.1:\(TestServer.current.port)")
    }
}

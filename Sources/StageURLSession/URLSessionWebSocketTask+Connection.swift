import Foundation
import FoundationNetworking
import StageControl
import StageSystem
import StageTransfer
import StageWebSocket
import StageWebSocketClient
import Synchronization

extension URLSessionWebSocketTask {
    /// Time limit for the server's close frame.
    private static let closeTimeout = Duration.seconds(5)

    /// Calls a handler of the application on the session's delegate queue.
    func answer(_ handler: @escaping @Sendable () -> Void) { session.delegateCalls.add(handler) }

    /// Opens the connection, or ends a task that must not open one.
    func begin() {
        if let refusal = record.withLock({ $0.refusal }) { return endForApplication(refusal) }
        session.engine.run { [self] engine in
            guard let engine else { return endForApplication(URLError.lackOfThreads) }
            await run(over: engine)
        }
    }

    /// Closes the connection with a close frame, or without one before it is open.
    func close(with frame: (code: CloseCode, reason: Data?)?) {
        // Without a close frame of its own, the task ends for the application at once.
        let error: any Error =
            frame == nil ? URLError(URLError.Code.cancelled) : POSIXError.webSocketIsClosed
        let (isOpen, wasClosing, handlers) = calls.withLock { calls in
            let (isOpen, wasClosing) = (calls.connection != nil, calls.isClosing)
            if let frame, isOpen { calls.noteClose(code: frame.code, reason: frame.reason) }
            let handlers =
                frame != nil && isOpen
                ? calls.beginClosing(error) : calls.fail(URLError(URLError.Code.cancelled))
            return (isOpen, wasClosing, handlers)
        }
        outputs.continuation.yield(
            .close(code: frame?.code ?? .noStatusReceived, reason: frame?.reason)
        )
        limits.continuation.yield(isOpen && !wasClosing ? Self.closeTimeout : .zero)
        for handler in handlers { answer(handler) }
        if frame == nil || !isOpen { endForApplication(URLError(URLError.Code.cancelled)) }
    }

    /// Ends the task and its connection at once.
    func end(_ error: URLError) {
        endForApplication(error)
        limits.continuation.yield(.zero)
    }

    /// Ends the task for the application, if it has not ended.
    private func endForApplication(_ error: (any Error)?) {
        let handlers = calls.withLock { $0.fail(error ?? POSIXError.webSocketIsClosed) }
        for handler in handlers { answer(handler) }
        outputs.continuation.finish()
        demands.continuation.finish()
        session.end(self, error: error)
    }

    /// Runs the connection, and ends the task with it.
    private func run(over engine: TransferEngine) async {
        var failure: (any Error)?
        do {
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { [self] in try await connect(over: engine) }
                group.addTask { [self] in await expireFirst() }
                defer { group.cancelAll() }
                try await group.next()
            }
        } catch {
            failure = error
        }
        // A refused handshake may have set cookies, too.
        await session.waitForCookies()
        finish(failure)
    }

    /// Returns after the first time limit to pass; a later limit may pass before an earlier one.
    private func expireFirst() async {
        // Without a limit, the task is cancelled.
        guard let limit = await limits.stream.first(where: { _ in true }) else { return }
        await withTaskGroup(of: Void.self) { group in
            group.addTask { [self] in await expire(limit) }
            group.addTask { [self] in await expireFirst() }
            await group.next()
            group.cancelAll()
        }
    }

    /// Returns after a time limit; restarts it if messages were unsent at its start, and bytes were sent since then.
    ///
    /// The time in which the machine is suspended does not count: the server gets the whole limit to answer.
    private func expire(_ limit: Duration) async {
        while true {
            let (isSending, sent) = sending
            // Cancelled if the connection has ended before.
            do { try await Task.sleep(for: limit, clock: .suspending) } catch { return }
            guard isSending, sending.bytes != sent else { return }
        }
    }

    /// Returns whether messages are unsent, and the number of bytes sent so far.
    private var sending: (isUnfinished: Bool, bytes: Int) {
        calls.withLock { ($0.hasUnsentMessages, $0.connection?.sentBytes ?? 0) }
    }

    /// Ends the task after its connection has ended.
    private func finish(_ failure: (any Error)?) {
        let (connection, isClosing) = calls.withLock { calls in
            defer { calls.connection = nil }
            return (calls.connection, calls.isClosing)
        }
        if let close = connection?.close {
            let (code, reason) = (close.taskCode, close.taskReason)
            calls.withLock { $0.noteClose(code: code, reason: reason) }
            session.reportClose(of: self, code: code, reason: reason)
            return endForApplication(nil)
        }
        if isClosing { return endForApplication(nil) }
        let error = failure as? WebSocketClientError ?? .cancelled
        endForApplication(error.taskError(url: originalRequest?.url, wasOpen: connection != nil))
    }

    private func connect(over engine: TransferEngine) async throws {
        guard let request = originalRequest else { return }
        var handshake = WebSocketRequest(
            request,
            rules: session.rules,
            messageSize: maximumMessageSize
        )
        handshake.options.closeTimeout = Self.closeTimeout
        let url = handshake.url
        handshake.options.onResponse = { [self] head in takeAnswer(head, of: url) }
        try await WebSocket.withConnection(to: url, over: engine, options: handshake.options) {
            messages,
            writer in
            let isWanted = calls.withLock { calls in
                guard calls.failure == nil else { return false }
                calls.connection = messages
                return true
            }
            guard isWanted else { throw WebSocketClientError.cancelled }
            await session.waitForCookies()
            session.reportOpening(of: self, subprotocol: messages.subprotocol)
            try await exchange(messages, writer: writer)
        }
    }

    /// Transfers messages until the server has closed the connection, or the application's close frame was sent.
    private func exchange(
        _ messages: WebSocketMessages,
        writer: WebSocketWriter
    ) async throws {
        let sentPings = AsyncStream.makeStream(of: SentPing.self)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { [self] in try await read(messages) }
            group.addTask { [self] in
                try await write(
                    to: writer,
                    sentPings: sentPings.continuation
                )
            }
            group.addTask { [self] in
                for await ping in sentPings.stream {
                    let error = try await ignoringEnd { try await writer.pong(to: ping.number) }
                    if let handler = calls.withLock({ $0.endPing(ping.call) }) {
                        answer { handler(error) }
                    }
                }
                // The other child tasks determine the end.
                await waitForCancellation()
                throw CancellationError()
            }
            defer { group.cancelAll() }
            try await group.next()
        }
    }

    private struct SentPing {
        var number: UInt64
        var call: Int
    }

    /// Delivers messages, one for each pending receive call.
    private func read(_ messages: WebSocketMessages) async throws {
        var iterator = messages.makeAsyncIterator()
        var demanded = demands.stream.makeAsyncIterator()
        while let message = try await iterator.next() {
            guard await demanded.next() != nil else {
                // The task has ended for the application: waits until the connection ends after the close frames.
                await waitForCancellation()
                throw CancellationError()
            }
            // There is no receiver while the application closes the connection.
            guard let receiver = calls.withLock({ $0.takeReceiver() }) else { continue }
            answer { receiver(.success(Message(message))) }
        }
    }

    /// Sends the application's messages and pings, up to its close frame.
    private func write(
        to writer: WebSocketWriter,
        sentPings: AsyncStream<SentPing>.Continuation
    ) async throws {
        for await output in outputs.stream {
            switch output {
            case .message(let call):
                guard let message = calls.withLock({ $0.message(of: call) }) else { continue }
                let error = try await ignoringEnd { try await writer.send(message.content) }
                if let handler = calls.withLock({ $0.endSend(call) }) { answer { handler(error) } }
            case .ping(let call):
                let error = try await ignoringEnd {
                    sentPings.yield(SentPing(number: try await writer.sendPing(), call: call))
                }
                guard let error else { continue }
                if let handler = calls.withLock({ $0.endPing(call) }) { answer { handler(error) } }
            case .close(let code, let reason):
                let close = WebSocketClose(code: code, reason: reason)
                _ = try await ignoringEnd {
                    try await writer.close(
                        code: close.code ?? .noStatusReceived,
                        reason: close.reason
                    )
                }
                return
            }
        }
        // The task was cancelled, or the reader has found the end of the connection.
        await waitForCancellation()
        throw CancellationError()
    }

    /// Runs `send`; returns an error after close frames were exchanged, which the reader processes in its order.
    private func ignoringEnd(_ send: () async throws -> Void) async throws -> POSIXError? {
        do {
            try await send()
            return nil
        } catch WebSocketClientError.webSocket(.closed) {
            return .webSocketIsClosed
        }
    }

    /// Records the head of the server's response.
    private func takeAnswer(_ head: HTTPHead, of url: String) {
        let status = head.line.split(separator: " ").dropFirst().first.flatMap { Int($0) }
        let answer = TransferResponse(
            url: url,
            status: status ?? 0,
            headers: head.fields.map { [$0.name, $0.value] }
        )
        record.withLock { $0.response = HTTPURLResponse(answer) }
        session.keepCookiesSoon(of: answer, for: self)
    }
}

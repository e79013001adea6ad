import FoundationEssentials
import StageModel
import StageSystem
import StageTransfer
import StageWebSocket
import Synchronization

/// Opens connections one after the other, and passes their events to one reader.
///
/// There is no queue: ``run(_:)`` waits for the reader's request before it reads from the connection.
final class WebSocketSupervisor: Sendable {
    typealias Event = ReconnectingWebSocketEvent
    typealias Body = (WebSocketMessages, WebSocketWriter) async throws -> Void
    /// Opens a connection for a scope.
    typealias Open = @Sendable (WebSocketOptions, Body) async throws -> Void
    typealias Reading = CheckedContinuation<Result<Event?, WebSocketClientError>, Never>
    typealias Waiter = CheckedContinuation<Void, Never>

    struct State: ~Copyable {
        /// The reader that waits for an event.
        var reading: Reading?
        /// ``run(_:)``, which waits for a reader.
        var asking: Waiter?
        /// Sender of the open connection.
        var writer: WebSocketWriter?
        /// Senders that wait for a connection, by number.
        var waiting: [Int: Waiter] = [:]
        var nextNumber = 0
        var end: Result<Void, WebSocketClientError>?
    }

    private let policy: WebSocketReconnectPolicy
    private let open: Open
    private let state = Mutex(State())

    init(policy: WebSocketReconnectPolicy, open: @escaping Open) {
        self.policy = policy
        self.open = open
    }
}

extension WebSocketSupervisor {
    /// Opens connections until a failure is permanent or the task is cancelled.
    func run(_ options: WebSocketOptions) async {
        do throws(WebSocketClientError) {
            try await connectRepeatedly(options)
            end(.success(()))
        } catch {
            end(.failure(error))
        }
    }

    private func connectRepeatedly(
        _ options: WebSocketOptions
    ) async throws(WebSocketClientError) {
        let begin = ContinuousClock.now
        var decision = ReconnectState(policy)
        while true {
            var options = options
            if let left = decision.timeLeft(at: ContinuousClock.now - begin) {
                options.handshakeTimeout = min(options.handshakeTimeout, left)
            }
            let end = await connect(options)
            let now = ContinuousClock.now
            switch decision.handle(end, at: now - begin, random: .random(in: 0..<1)) {
            case .end: return
            case .fail(let error): throw error
            case .connect(let delay):
                let disconnected = Event.Disconnected(
                    reason: end.reason,
                    failures: decision.failures,
                    retryDelay: delay
                )
                try await deliver(.disconnected(disconnected))
                let start = now + delay.sleepable
                do { try await Task.sleep(until: start, clock: .continuous) } catch {
                    throw .cancelled
                }
            }
        }
    }

    /// Opens a connection, passes on its messages, and returns its end.
    private func connect(_ options: WebSocketOptions) async -> ReconnectState.End {
        var options = options
        let pause = Mutex<Duration?>(nil)
        let onResponse = options.onResponse
        options.onResponse = { head in
            pause.withLock { $0 = head.retryDelay }
            onResponse?(head)
        }
        var opened: WebSocketMessages?
        var failure: (any Error)?
        do {
            try await open(options) { messages, writer in
                opened = messages
                begin(writer)
                defer { remove(writer) }
                try await deliver(messages, writer: writer)
            }
        } catch {
            failure = error
        }
        // The close frame is the reason even if the connection broke right after it.
        let close = opened?.close.map { WebSocketClientError.closed($0) }
        let reason = close ?? failure as? WebSocketClientError ?? .cancelled
        var end = ReconnectState.End(reason: reason, uptime: opened?.connection.uptime)
        switch reason {
        case .webSocket(.refused(429)), .webSocket(.refused(503)):
            end.retryAfter = pause.withLock { $0 }
        case .connection(.refused(_, _, let pause)): end.retryAfter = pause
        default: break
        }
        return end
    }

    private func deliver(
        _ messages: WebSocketMessages,
        writer: WebSocketWriter
    ) async throws(WebSocketClientError) {
        let connected = Event.Connected(subprotocol: messages.subprotocol, writer: writer)
        try await deliver(.connected(connected))
        var iterator = messages.makeAsyncIterator()
        while true {
            // A request for the next message tells the connection that the last one was processed.
            try await awaitReader()
            guard let message = try await iterator.next() else { return }
            try await deliver(.message(message))
        }
    }

    /// Passes an event to the reader, once there is one.
    private func deliver(_ event: Event) async throws(WebSocketClientError) {
        while true {
            try await awaitReader()
            guard let reading = state.withLock({ $0.reading.take() }) else { continue }
            return reading.resume(returning: .success(event))
        }
    }

    /// Waits until the reader requests an event.
    private func awaitReader() async throws(WebSocketClientError) {
        await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: Waiter) in
                let mustWait = state.withLock { state in
                    if state.reading != nil || Task.isCancelled { return false }
                    state.asking = continuation
                    return true
                }
                if !mustWait { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.asking.take() }?.resume()
        }
        if Task.isCancelled { throw .cancelled }
    }
}

extension WebSocketSupervisor {
    /// Waits for the next event.
    func next() async throws(WebSocketClientError) -> Event? {
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: Reading) in
                let (result, waiter) = state.withLock {
                    state -> (Result<Event?, WebSocketClientError>?, Waiter?) in
                    if let end = state.end { return (end.map { nil }, nil) }
                    if Task.isCancelled { return (.failure(.cancelled), nil) }
                    precondition(state.reading == nil, "events are read by one task at a time")
                    state.reading = continuation
                    return (nil, state.asking.take())
                }
                waiter?.resume()
                if let result { continuation.resume(returning: result) }
            }
        } onCancel: {
            let reading = state.withLock { $0.reading.take() }
            reading?.resume(returning: .failure(.cancelled))
        }
        return try result.get()
    }

    /// Ends the sequence of events, unless it has ended, and resumes all waiting tasks.
    func end(_ result: Result<Void, WebSocketClientError>) {
        let (reading, waiters) = state.withLock { state -> (Reading?, [Waiter]) in
            guard state.end == nil else { return (nil, []) }
            state.end = result
            state.writer = nil
            let waiters = state.takeWaiting() + [state.asking.take()].compactMap { $0 }
            return (state.reading.take(), waiters)
        }
        reading?.resume(returning: result.map { nil })
        for waiter in waiters { waiter.resume() }
    }

    /// Performs the closing handshake of the open connection, if there is one.
    func close(within limit: Duration) async {
        guard let writer = state.withLock({ $0.writer }) else { return }
        await writer.connection.close(WebSocketClose(code: .normalClosure), within: limit)
    }
}

extension WebSocketSupervisor {
    /// Uses a newly opened connection for messages.
    private func begin(_ writer: WebSocketWriter) {
        let waiters = state.withLock { state in
            if state.end == nil { state.writer = writer }
            return state.takeWaiting()
        }
        for waiter in waiters { waiter.resume() }
    }

    /// Stops using a connection for messages.
    func remove(_ writer: WebSocketWriter) {
        state.withLock { state in
            if state.writer?.connection === writer.connection { state.writer = nil }
        }
    }

    /// Waits for an open connection until a deadline.
    func writer(
        until deadline: ContinuousClock.Instant
    ) async throws(WebSocketClientError) -> WebSocketWriter {
        while true {
            if Task.isCancelled { throw .cancelled }
            let (writer, end) = state.withLock { ($0.writer, $0.end) }
            if let writer { return writer }
            switch end {
            case .success: throw .webSocket(.closed)
            case .failure(let error): throw error
            case nil: break
            }
            guard deadline > .now else { throw .notConnected }
            // At the deadline, and if the task is cancelled, the loop throws.
            _ = try? await withDeadline(deadline) { [self] in await awaitConnection() }
        }
    }

    /// Waits until a connection is open, there will be none, or the task is cancelled.
    private func awaitConnection() async {
        let number = state.withLock { state in
            state.nextNumber += 1
            return state.nextNumber
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: Waiter) in
                let mustWait = state.withLock { state in
                    if state.writer != nil || state.end != nil || Task.isCancelled { return false }
                    state.waiting[number] = continuation
                    return true
                }
                if !mustWait { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: number) }?.resume()
        }
    }
}

extension WebSocketSupervisor.State {
    /// Removes and returns all senders that wait for a connection.
    fileprivate mutating func takeWaiting() -> [CheckedContinuation<Void, Never>] {
        defer { waiting = [:] }
        return Array(waiting.values)
    }
}

extension HTTPHead {
    /// Time that the server asks to wait.
    fileprivate var retryDelay: Duration? {
        guard let value = values(of: "Retry-After").first else { return nil }
        let now = HTTPDate(seconds: Int64(Date.now.timeIntervalSince1970))
        return RetryAfter.delay(in: value, answeredAt: values(of: "Date").first, readAt: now)
    }
}

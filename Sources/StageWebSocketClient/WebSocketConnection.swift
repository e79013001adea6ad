import StageTransfer
import StageWebSocket
import Synchronization

/// An open connection: its state machine, its bytes, and the tasks that wait for either.
final class WebSocketConnection: Sendable {
    typealias Waiter = CheckedContinuation<Void, Never>
    typealias Reading = CheckedContinuation<
        Result<WebSocketMessage?, WebSocketClientError>, Never
    >
    typealias Pinging = CheckedContinuation<Result<Void, WebSocketClientError>, Never>

    enum End {
        case closed
        case failed(WebSocketClientError)
    }

    struct State: ~Copyable {
        var machine: WebSocketMachine
        /// `true` while a task writes; `writers` wait until it has finished.
        var isWriting = false
        var writers: [Waiter] = []
        /// The message that was read ahead, the task that waits for one, and the task that waits for its removal.
        var inbox: WebSocketMessage?
        var reading: Reading?
        var emptying: Waiter?
        /// The task that waits until a message is requested.
        var asking: Waiter?
        /// `true` if messages are discarded, since the scope ends.
        var isDiscarding = false
        var pings: [UInt64: Ping] = [:]
        var nextPing: UInt64 = 0
        var received = 0
        /// Number of bytes that the kernel has accepted.
        var sent = 0
        var peerClose: WebSocketClose?
        var end: End?
        var ending: [Waiter] = []
        let openedAt = ContinuousClock.now
        var endedAt: ContinuousClock.Instant?
    }

    /// Bytes that are written at once.
    static let pieceSize = 1 << 16

    let subprotocol: String?
    private let bytes: ByteConnection
    private let rest: [UInt8]
    private let closeTimeout: Duration
    let state: Mutex<State>

    /// Creates the connection after its opening handshake.
    init(
        _ bytes: ByteConnection,
        agreement: ClientHandshake.Agreement,
        options: WebSocketOptions
    ) {
        self.bytes = bytes
        closeTimeout = options.closeTimeout
        subprotocol = agreement.subprotocol
        rest = agreement.rest
        let machine = WebSocketMachine(
            role: .client { UInt32.random(in: 0 ... .max) },
            compression: agreement.compression,
            limits: options.limits
        )
        state = Mutex(State(machine: machine))
    }

    /// Content of the server's close frame, once it has arrived.
    var peerClose: WebSocketClose? { state.withLock { $0.peerClose } }

    /// Number of bytes that the kernel has accepted since the opening handshake.
    var sentBytes: Int { state.withLock { $0.sent } }

    /// Time from the opening handshake to the end, or until now.
    var uptime: Duration { state.withLock { ($0.endedAt ?? .now) - $0.openedAt } }
}

extension WebSocketConnection {
    private var hasOutput: Bool { state.withLock { $0.machine.hasOutput } }

    /// Reads until the connection ends, and delivers each message.
    func pump() async {
        do {
            var piece = rest
            while true {
                let found = piece
                state.withLock { state in
                    state.received += found.count
                    state.machine.receive(found.span)
                }
                var failure: WebSocketError?
                while let event = state.withLock({ $0.machine.nextEvent() }) {
                    if hasOutput { try await write { _ in } }
                    await handle(event)
                    if case .failure(let error) = event { failure = error }
                }
                if hasOutput { try await write { _ in } }
                if let failure {
                    await drain(within: min(closeTimeout, .seconds(1)))
                    throw WebSocketClientError.webSocket(failure)
                }
                if state.withLock({ $0.machine.isFinished }) { break }
                piece = try await bytes.receive()
                guard !piece.isEmpty else { throw WebSocketClientError.lost }
            }
            await drain(within: closeTimeout)
            finish(.closed)
        } catch let error as WebSocketClientError {
            finish(.failed(error))
        } catch let error as TransferError {
            finish(.failed(error == .cancelled ? .cancelled : .connection(error)))
        } catch {
            finish(.failed(.cancelled))
        }
    }

    private func handle(_ event: WebSocketEvent) async {
        switch event {
        case .message(let message): await deliver(message)
        case .pong(let payload):
            for pinging in state.withLock({ $0.answerPings(payload) }) {
                pinging.resume(returning: .success(()))
            }
        case .ping: break
        case .close(let close):
            state.withLock { $0.peerClose = close }
            await waitForApplication()
        case .failure: await waitForApplication()
        }
    }

    /// Waits until the application requests the next message, for the close timeout at most: it may still respond to the
    /// last one, and no message can be sent after the close frame.
    private func waitForApplication() async {
        _ = try? await withTimeLimit(closeTimeout) { [self] in
            await withTaskCancellationHandler {
                await withCheckedContinuation { (continuation: Waiter) in
                    let mustWait = state.withLock { state in
                        if state.reading != nil || state.isDiscarding || state.end != nil
                            || state.machine.hasSentClose || Task.isCancelled
                        {
                            return false
                        }
                        state.asking = continuation
                        return true
                    }
                    if !mustWait { continuation.resume() }
                }
            } onCancel: {
                state.withLock { $0.asking.take() }?.resume()
            }
        }
    }

    /// Waits until the server has closed the connection, which it must do first (RFC 6455, section 7.1.1), up to a
    /// time limit.
    private func drain(within limit: Duration) async {
        // After the limit, or if the connection breaks, this side closes it.
        _ = try? await withTimeLimit(limit) { [bytes] in
            while try await !bytes.receive().isEmpty {}
        }
    }

    /// Passes a message to the waiting reader, or waits until it is read.
    private func deliver(_ message: WebSocketMessage) async {
        await withCheckedContinuation { (continuation: Waiter) in
            let (reading, mustWait) = state.withLock { state -> (Reading?, Bool) in
                guard !state.isDiscarding, state.end == nil else { return (nil, false) }
                if let reading = state.reading.take() { return (reading, false) }
                state.inbox = message
                state.emptying = continuation
                return (nil, true)
            }
            reading?.resume(returning: .success(message))
            if !mustWait { continuation.resume() }
        }
    }

    /// Waits for the next message.
    func next() async throws(WebSocketClientError) -> WebSocketMessage? {
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: Reading) in
                let (result, waiter) = state.withLock {
                    state -> (Result<WebSocketMessage?, WebSocketClientError>?, Waiter?) in
                    if let message = state.inbox.take() {
                        return (.success(message), state.emptying.take())
                    }
                    switch state.end {
                    case .closed: return (.success(nil), nil)
                    case .failed(let error): return (.failure(error), nil)
                    case nil: break
                    }
                    if Task.isCancelled { return (.failure(.cancelled), nil) }
                    precondition(state.reading == nil, "messages are read by one task at a time")
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

    /// Sends a message.
    func send(_ message: WebSocketMessage) async throws(WebSocketClientError) {
        try await write { (machine) throws(WebSocketError) in try machine.send(message) }
    }

    /// Sends a close frame, if none was sent.
    func close(_ close: WebSocketClose) async throws(WebSocketClientError) {
        try await write { $0.close(close) }
    }
}

extension WebSocketConnection {
    /// Waits for earlier writers, changes the machine, and sends the resulting bytes; if the task is cancelled meanwhile,
    /// the connection ends with the error `cancelled`.
    func write(
        cancelled: WebSocketClientError = .cancelled,
        _ change: (inout WebSocketMachine) throws(WebSocketError) -> Void
    ) async throws(WebSocketClientError) {
        try await writeExclusively(cancelled: cancelled) { (state) throws(WebSocketError) in
            try change(&state.machine)
        }
    }

    /// Changes the state as ``write(cancelled:_:)`` changes the machine.
    func writeExclusively(
        cancelled: WebSocketClientError = .cancelled,
        _ change: (inout State) throws(WebSocketError) -> Void
    ) async throws(WebSocketClientError) {
        await withCheckedContinuation { (continuation: Waiter) in
            let isFree = state.withLock { state in
                guard state.isWriting else {
                    state.isWriting = true
                    return true
                }
                state.writers.append(continuation)
                return false
            }
            if isFree { continuation.resume() }
        }
        defer { endWriting() }
        var output: [UInt8] = []
        do throws(WebSocketError) {
            output = try state.withLock { state throws(WebSocketError) in
                if state.end != nil { throw .closed }
                try change(&state)
                return state.machine.takeOutput()
            }
        } catch {
            throw .webSocket(error)
        }
        do throws(TransferError) {
            try await send(output)
        } catch {
            let reason = error == .cancelled ? cancelled : .connection(error)
            abort(reason)
            throw reason
        }
    }

    /// Sends bytes in pieces, so that progress shows while a slow server takes them.
    private func send(_ output: [UInt8]) async throws(TransferError) {
        var start = 0
        while start < output.count {
            let end = min(start + Self.pieceSize, output.count)
            try await bytes.send(Array(output[start..<end]))
            state.withLock { [start] in $0.sent += end - start }
            start = end
        }
    }

    private func endWriting() {
        let next = state.withLock { state -> Waiter? in
            guard !state.writers.isEmpty else {
                state.isWriting = false
                return nil
            }
            return state.writers.removeFirst()
        }
        next?.resume()
    }

    /// Current activity, and whether the connection has ended.
    var activity: Activity {
        state.withLock { state in
            Activity(
                received: state.received,
                sent: state.sent,
                hasUnreadMessage: state.inbox != nil,
                isOver: state.end != nil,
                isWriting: state.isWriting
            )
        }
    }

    /// Performs the closing handshake, and closes the connection afterwards or at the time limit.
    ///
    /// The limit is for the server's answer to the close frame, and for each piece of the bytes before that frame.
    func close(_ close: WebSocketClose, within limit: Duration) async {
        let waiters = state.withLock { state in
            state.isDiscarding = true
            state.inbox = nil
            return [state.emptying.take(), state.asking.take()]
        }
        for waiter in waiters { waiter?.resume() }
        // After the limit, or if that fails, the connection is closed without a handshake.
        let sent: Void? = try? await withTimeLimit(
            limit,
            since: { [self] in sentBytes },
            body: { [self] in
                try await withTaskCancellationHandler {
                    try await self.close(close)
                } onCancel: {
                    // A task does not notice cancellation while it waits for a writer that the server's full buffers block.
                    abort(.cancelled)
                }
            }
        )
        if sent != nil { _ = try? await withTimeLimit(limit) { [self] in await ended() } }
        abort(.cancelled)
    }

    private func ended() async {
        await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: Waiter) in
                let isOver = state.withLock { state in
                    if state.end != nil || Task.isCancelled { return true }
                    state.ending.append(continuation)
                    return false
                }
                if isOver { continuation.resume() }
            }
        } onCancel: {
            abort(.cancelled)
        }
    }

    /// Closes the connection without a handshake.
    func abort(_ reason: WebSocketClientError) { finish(.failed(reason)) }

    private func finish(_ end: End) {
        let waiting = state.withLock { state -> Waiting? in
            guard state.end == nil else { return nil }
            state.end = end
            state.endedAt = .now
            defer { state.ending = [] }
            // The message that was read ahead remains available after a regular end.
            return Waiting(
                reading: state.reading.take(),
                pings: state.pings.values.compactMap { ping in
                    if case .awaited(let pinging) = ping { pinging } else { nil }
                },
                waiters: state.ending
                    + [state.emptying.take(), state.asking.take()].compactMap { $0 }
            )
        }
        bytes.close()
        guard let waiting else { return }
        let result: Result<WebSocketMessage?, WebSocketClientError> =
            switch end {
            case .closed: .success(nil)
            case .failed(let error): .failure(error)
            }
        waiting.reading?.resume(returning: result)
        let pong: Result<Void, WebSocketClientError> = result.flatMap { _ in
            .failure(.webSocket(.closed))
        }
        for ping in waiting.pings { ping.resume(returning: pong) }
        for waiter in waiting.waiters { waiter.resume() }
    }

    private struct Waiting {
        var reading: Reading?
        var pings: [Pinging]
        var waiters: [Waiter]
    }
}

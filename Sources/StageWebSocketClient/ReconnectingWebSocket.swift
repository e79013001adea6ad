import StageSystem
public import StageTransfer
public import StageWebSocket

extension WebSocket {
    /// Keeps a connection open until `body` returns or throws, by reconnecting after each loss.
    ///
    /// `events` delivers ``ReconnectingWebSocketEvent/connected(_:)`` before the messages of each connection:
    /// subscribe again there. The reader drives the connection: a new one is opened only when the reader has received
    /// ``ReconnectingWebSocketEvent/disconnected(_:)``, and the messages of the old one before it, so at most two
    /// messages are in memory, one of which the connection has read ahead.
    /// No message is delivered twice. Messages that the server sent to a broken connection are lost, and so may be
    /// those sent on it: none is requested or sent again.
    ///
    /// `policy` also applies to the first connection. Cancellation ends everything at once. When `body` returns, the
    /// open connection is closed as by ``withConnection(to:over:options:_:)``; no task remains.
    ///
    /// - Parameters:
    ///   - url: A ws, wss, http or https URL.
    ///   - engine: The engine that opens the connections.
    ///   - options: Offers and limits of each connection. ``WebSocketOptions/pingInterval`` detects half-open
    ///     connections, which otherwise may remain for ever.
    ///   - policy: Rules for delays, limits, and permanent failures.
    ///   - body: The code that uses the connections.
    /// - Returns: The result of `body`.
    /// - Throws: The errors of `body`. `events` and `writer` throw the failures of connections.
    public static func withReconnectingConnection<Result>(
        to url: String,
        over engine: TransferEngine,
        options: WebSocketOptions = WebSocketOptions(),
        policy: WebSocketReconnectPolicy = WebSocketReconnectPolicy(),
        _ body: (ReconnectingWebSocketEvents, ReconnectingWebSocketWriter) async throws -> Result
    ) async throws -> Result {
        let supervisor = WebSocketSupervisor(policy: policy) { options, body in
            try await withConnection(to: url, over: engine, options: options, body)
        }
        return try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { await supervisor.run(options) }
            defer {
                supervisor.end(.failure(.cancelled))
                group.cancelAll()
            }
            let result = try await body(
                ReconnectingWebSocketEvents(supervisor: supervisor),
                ReconnectingWebSocketWriter(supervisor: supervisor)
            )
            await supervisor.close(within: options.closeTimeout)
            return result
        }
    }
}

/// Event of a reconnecting WebSocket.
@nonexhaustive
public enum ReconnectingWebSocketEvent: Sendable {
    /// A connection is open.
    case connected(Connected)
    /// A message arrived.
    case message(WebSocketMessage)
    /// The connection was lost, or an attempt to open one failed, and another attempt follows.
    case disconnected(Disconnected)

    /// Properties of an open connection.
    public struct Connected: Sendable {
        /// Subprotocol that the server selected.
        public var subprotocol: String?
        /// Sender of this connection only, which throws after the connection has ended.
        ///
        /// A subscription that it sends reaches this connection or none. After a close frame of this side, the code
        /// of the server's response decides whether a new connection is opened.
        public var writer: WebSocketWriter
    }

    /// Reason and consequence of the end of a connection, or of a failed attempt.
    public struct Disconnected: Equatable, Sendable {
        /// The reason; ``WebSocketClientError/closed(_:)`` if the server sent a close frame.
        public var reason: WebSocketClientError
        /// Number of consecutive failures; 0 after a connection that lasted for
        /// ``WebSocketReconnectPolicy/minimumUptime``.
        public var failures: Int
        /// Time from the failure to the next attempt.
        public var retryDelay: Duration
    }
}

/// Events of the connections in order; one iterator at a time.
///
/// The sequence ends when the server closes a connection with code 1000, if the policy treats that as final. It
/// throws the ``WebSocketClientError`` of a permanent failure, or
/// ``WebSocketClientError/retriesExhausted(failures:last:)``.
public struct ReconnectingWebSocketEvents: AsyncSequence, Sendable {
    let supervisor: WebSocketSupervisor

    /// Creates the iterator.
    public func makeAsyncIterator() -> Iterator { Iterator(supervisor: supervisor) }

    /// Iterator over the events.
    public struct Iterator: AsyncIteratorProtocol {
        let supervisor: WebSocketSupervisor

        /// Waits for the next event; `nil` after the permanent end of the connection.
        ///
        /// Cancellation while it waits loses no event: the next call returns it.
        public mutating func next() async throws(WebSocketClientError)
            -> ReconnectingWebSocketEvent?
        { try await supervisor.next() }
    }
}

/// Sender over the currently open connection, for any number of tasks.
public struct ReconnectingWebSocketWriter: Sendable {
    let supervisor: WebSocketSupervisor

    /// Sends a message over the open connection, and returns when the kernel has accepted it.
    ///
    /// A message is sent at most once. ``WebSocketClientError/notConnected`` means that none of it was sent. After
    /// another error the connection broke meanwhile, and a part or all of the message may have been sent; it is not
    /// sent again. A connection that breaks later may lose a message for which this has returned: only a response
    /// from the server proves its arrival.
    ///
    /// Waiting calls keep their message in memory. When a connection opens they continue in no particular order,
    /// possibly before the reader of the events has sent any message on it.
    ///
    /// - Parameters:
    ///   - message: The message.
    ///   - limit: Longest time to wait for a connection; by default none.
    /// - Throws: ``WebSocketClientError/notConnected`` if there is no connection within `limit`, the error that ended
    ///   the sequence of events if there will be none, and the errors of `WebSocketWriter`.
    public func send(
        _ message: WebSocketMessage,
        waitingForConnection limit: Duration = .zero
    ) async throws(WebSocketClientError) {
        let deadline = ContinuousClock.now + limit.sleepable
        while true {
            let writer = try await supervisor.writer(until: deadline)
            do throws(WebSocketClientError) {
                return try await writer.send(message)
            } catch .webSocket(.closed) {
                // No part of the message was sent: the connection had ended, which the reader of the events may not have seen
                // yet.
                supervisor.remove(writer)
            }
        }
    }

    /// Sends text as ``send(_:waitingForConnection:)`` sends a message.
    ///
    /// - Throws: ``WebSocketClientError``.
    public func send(
        _ text: String,
        waitingForConnection limit: Duration = .zero
    ) async throws(WebSocketClientError) {
        try await send(.text(text), waitingForConnection: limit)
    }
}

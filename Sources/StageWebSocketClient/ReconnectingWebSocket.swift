public import StageTransfer
public import StageWebSocket

extension WebSocket {
    /// Keeps a connection open, with a new one for each that is lost, until `body` returns or throws.
    ///
    /// Events are read from `events`, in which ``ReconnectingWebSocketEvent/connected(_:)`` comes before the messages of each
    /// connection: that is the place to subscribe anew. The reader drives the connection: a new one is opened when
    /// ``ReconnectingWebSocketEvent/disconnected(_:)`` has been taken, and the messages of the old one before it, so
    /// there is one message in memory and the one that the connection has read ahead.
    /// No message is delivered twice, but the messages that the server sent to a connection that broke are lost, and what
    /// was sent on it may be: neither is asked for or sent again.
    ///
    /// The first connection is subject to `policy`, too. Cancellation ends everything at once. When `body` returns, the
    /// connection that is open is closed as ``withConnection(to:over:options:_:)`` closes it; no task is left.
    ///
    /// - Parameters:
    ///   - url: A ws, wss, http or https URL.
    ///   - engine: The engine that makes the connections.
    ///   - options: Offers and limits of each connection. A connection that is half-open is found by
    ///     ``WebSocketOptions/pingInterval``, without which it may stay for ever.
    ///   - policy: Rules for delays, limits, and failures that are final.
    ///   - body: The use of the connections.
    /// - Returns: The result of `body`.
    /// - Throws: The errors that `body` throws. Failures of connections are thrown by `events` and `writer`.
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
            await supervisor.close(within: options.closeLimit)
            return result
        }
    }
}

/// An event of a connection that is opened anew when it is lost.
public enum ReconnectingWebSocketEvent: Sendable {
    /// A connection is open.
    case connected(Connected)
    /// A message has come.
    case message(WebSocketMessage)
    /// The connection was lost, or an attempt to open one failed, and another attempt follows.
    case disconnected(Disconnected)

    /// Properties of a connection that has been opened.
    public struct Connected: Sendable {
        /// Subprotocol that the server selected.
        public var subprotocol: String?
        /// Sender of this connection alone, which throws after the connection has ended.
        ///
        /// A subscription that is sent with it reaches this connection or none. After a close frame of this side, the
        /// code that the server answers with decides whether a new connection is opened.
        public var writer: WebSocketWriter
    }

    /// Reason and consequence of the end of a connection, or of a failed attempt.
    public struct Disconnected: Equatable, Sendable {
        /// The reason; ``WebSocketClientError/closed(_:)`` if the server sent a close frame.
        public var reason: WebSocketClientError
        /// Number of failures in a row; 0 after a connection that lasted for
        /// ``WebSocketReconnectPolicy/minimumUptime``.
        public var failures: Int
        /// Time from the failure to the next attempt.
        public var retryDelay: Duration
    }
}

/// Events of connections in order; one iterator at a time.
///
/// The sequence ends when the server closes a connection with code 1000, if the policy counts that as final. It throws the
/// ``WebSocketClientError`` of a failure that is final, or ``WebSocketClientError/retriesExhausted(failures:last:)``.
public struct ReconnectingWebSocketEvents: AsyncSequence, Sendable {
    let supervisor: WebSocketSupervisor

    /// Creates the iterator.
    public func makeAsyncIterator() -> Iterator { Iterator(supervisor: supervisor) }

    /// Iterator over the events.
    public struct Iterator: AsyncIteratorProtocol {
        let supervisor: WebSocketSupervisor

        /// Waits for the next event; `nil` once the connection has ended for good.
        ///
        /// Cancellation while it waits loses no event: the next call returns it.
        public mutating func next() async throws(WebSocketClientError)
            -> ReconnectingWebSocketEvent?
        { try await supervisor.next() }
    }
}

/// Sender over the connection that is open at the moment, for any number of tasks.
public struct ReconnectingWebSocketWriter: Sendable {
    let supervisor: WebSocketSupervisor

    /// Sends a message over the open connection, and returns when the system has taken it.
    ///
    /// A message is sent once or not at all. After ``WebSocketClientError/notConnected`` nothing of it was sent. After
    /// another error the connection broke meanwhile, and a part or all of the message may have been sent; it is not sent
    /// again. A connection that breaks later may lose a message for which this has returned: only an answer of the server
    /// proves that it has come.
    ///
    /// Calls that wait hold their message, and are let through in no particular order when a connection opens, which may
    /// be before the reader of the events has sent anything on it.
    ///
    /// - Parameters:
    ///   - message: The message.
    ///   - limit: Longest time to wait for a connection; by default none.
    /// - Throws: ``WebSocketClientError/notConnected`` if there is no connection by then, the error that ended the sequence of
    ///   events if there will be none, and the errors of ``WebSocketWriter/send(_:)``.
    public func send(
        _ message: WebSocketMessage,
        waitingForConnection limit: Duration = .zero
    ) async throws(WebSocketClientError) {
        let deadline = ContinuousClock.now + limit
        while true {
            let writer = try await supervisor.writer(until: deadline)
            do throws(WebSocketClientError) {
                return try await writer.send(message)
            } catch .webSocket(.closed) {
                // Nothing was sent: the connection had ended, which the reader of the events may not have seen yet.
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

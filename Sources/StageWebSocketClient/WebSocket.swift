public import StageTransfer
public import StageWebSocket

/// WebSocket connections of a client (RFC 6455) over a transfer engine.
public enum WebSocket {
    /// Opens a connection, and closes it when `body` returns or throws.
    ///
    /// The engine's proxies, authorities and credentials for the host are used. Redirects are not followed. When `body`
    /// returns, the closing handshake is made, within ``WebSocketOptions/closeLimit``; when it throws, or the task is
    /// cancelled, the connection is closed at once. `messages` and `writer` do not work after that.
    ///
    /// - Parameters:
    ///   - url: A ws, wss, http or https URL.
    ///   - engine: The engine that makes the connection.
    ///   - options: What is offered, and limits.
    ///   - body: The use of the connection.
    /// - Returns: The result of `body`.
    /// - Throws: ``WebSocketClientError`` if there is no connection, and what `body` throws.
    public static func withConnection<Result>(
        to url: String,
        over engine: TransferEngine,
        options: WebSocketOptions = WebSocketOptions(),
        _ body: (WebSocketMessages, WebSocketWriter) async throws -> Result
    ) async throws -> Result {
        let connection = try await WebSocketConnection.open(url, over: engine, options)
        return try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { await connection.pump() }
            if let interval = options.pingInterval {
                group.addTask { await connection.keepAlive(every: interval) }
            }
            defer {
                connection.abort(.cancelled)
                group.cancelAll()
            }
            let result = try await body(
                WebSocketMessages(connection: connection),
                WebSocketWriter(connection: connection)
            )
            await connection.close(
                WebSocketClose(code: .normalClosure),
                within: options.closeLimit
            )
            return result
        }
    }
}

/// Messages of a connection in the order in which they come; one iterator at a time.
///
/// The sequence ends when the server closes the connection, and throws a ``WebSocketClientError`` if the connection breaks.
/// One message is read ahead: a server that sends faster than messages are taken is held up.
public struct WebSocketMessages: AsyncSequence, Sendable {
    let connection: WebSocketConnection

    /// Subprotocol that the server selected.
    public var subprotocol: String? { connection.subprotocol }

    /// Content of the server's close frame, once it has come.
    public var close: WebSocketClose? { connection.peerClose }

    /// Creates the iterator.
    public func makeAsyncIterator() -> Iterator { Iterator(connection: connection) }

    /// Iterator over the messages of a connection.
    public struct Iterator: AsyncIteratorProtocol {
        let connection: WebSocketConnection

        /// Waits for the next message; `nil` once the server has closed the connection.
        public mutating func next() async throws(WebSocketClientError) -> WebSocketMessage? {
            try await connection.next()
        }
    }
}

/// Sender of a connection, for any number of tasks.
public struct WebSocketWriter: Sendable {
    let connection: WebSocketConnection

    /// Sends a message, and returns when the system has taken it: a server that does not read holds the caller up.
    ///
    /// Cancellation while it waits breaks the connection, since a part of the message may have been sent.
    ///
    /// - Throws: ``WebSocketClientError``.
    public func send(_ message: WebSocketMessage) async throws(WebSocketClientError) {
        try await connection.send(message)
    }

    /// Sends text.
    ///
    /// - Throws: ``WebSocketClientError``.
    public func send(_ text: String) async throws(WebSocketClientError) {
        try await connection.send(.text(text))
    }

    /// Sends a ping, and waits for its pong.
    ///
    /// The pong comes after the messages before it, so it may take until those are read.
    ///
    /// - Throws: ``WebSocketClientError``.
    public func ping() async throws(WebSocketClientError) {
        try await connection.pong(to: connection.sendPing())
    }

    /// Sends a ping, and returns its number for ``pong(to:)``, which must be called.
    package func sendPing() async throws(WebSocketClientError) -> UInt64 {
        try await connection.sendPing()
    }

    /// Waits for the pong of a ping, or of a later one.
    package func pong(to number: UInt64) async throws(WebSocketClientError) {
        try await connection.pong(to: number)
    }

    /// Sends a close frame, after which nothing can be sent; messages that are on their way still come.
    ///
    /// - Throws: ``WebSocketClientError``.
    public func close(
        code: CloseCode = .normalClosure,
        reason: String = ""
    ) async throws(WebSocketClientError) {
        try await connection.close(WebSocketClose(code: code, reason: reason))
    }
}

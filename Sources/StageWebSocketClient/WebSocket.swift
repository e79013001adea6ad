public import StageTransfer
public import StageWebSocket

/// WebSocket connections of a client (RFC 6455) over a transfer engine.
public enum WebSocket {
    /// Opens a connection, and closes it when `body` returns or throws.
    ///
    /// It uses the engine's proxies, authorities and credentials for the host, and does not follow redirects. When
    /// `body` returns, it performs the closing handshake within ``WebSocketOptions/closeTimeout``; when `body` throws,
    /// or the task is cancelled, it closes the connection at once. `messages` and `writer` do not work after that.
    ///
    /// - Parameters:
    ///   - url: A ws, wss, http or https URL.
    ///   - engine: The engine that opens the connection.
    ///   - options: Offers and limits.
    ///   - body: The code that uses the connection.
    /// - Returns: The result of `body`.
    /// - Throws: ``WebSocketClientError`` if the connection fails, and the errors of `body`.
    public static func withConnection<Result>(
        to url: String,
        over engine: TransferEngine,
        options: WebSocketOptions = WebSocketOptions(),
        _ body: (WebSocketMessages, WebSocketWriter) async throws -> Result
    ) async throws -> Result {
        let connection = try await WebSocketConnection.open(
            url,
            over: engine,
            options: options
        )
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
                within: options.closeTimeout
            )
            return result
        }
    }
}

/// Messages of a connection in order of arrival; one iterator at a time.
///
/// The sequence ends when the server closes the connection, and throws a ``WebSocketClientError`` if the connection
/// breaks. One message is read ahead: a server that sends faster than the messages are processed has to wait.
public struct WebSocketMessages: AsyncSequence, Sendable {
    let connection: WebSocketConnection

    /// Subprotocol that the server selected.
    public var subprotocol: String? { connection.subprotocol }

    /// Content of the server's close frame, once it has arrived.
    public var close: WebSocketClose? { connection.peerClose }

    /// Number of bytes that the kernel has accepted for the server.
    package var sentBytes: Int { connection.sentBytes }

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

    /// Sends a message, and returns when the kernel has accepted it: a caller has to wait for a server that does not
    /// read.
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
    /// The pong is processed after the messages before it, so this may wait until they are read.
    ///
    /// - Throws: ``WebSocketClientError``.
    public func ping() async throws(WebSocketClientError) {
        try await connection.pong(to: connection.sendPing())
    }

    /// Sends a ping, and returns its number for ``pong(to:)``, which the caller must call.
    package func sendPing() async throws(WebSocketClientError) -> UInt64 {
        try await connection.sendPing()
    }

    /// Waits for the pong to a ping, or to a later one.
    package func pong(to number: UInt64) async throws(WebSocketClientError) {
        try await connection.pong(to: number)
    }

    /// Sends a close frame, after which no message can be sent; messages in transit still arrive.
    ///
    /// - Throws: ``WebSocketClientError``.
    public func close(
        code: CloseCode = .normalClosure,
        reason: String = ""
    ) async throws(WebSocketClientError) {
        try await connection.close(WebSocketClose(code: code, reason: reason))
    }
}

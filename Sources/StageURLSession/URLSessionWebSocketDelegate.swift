public import Foundation

/// Is told what becomes of WebSocket tasks, on the session's delegate queue.
///
/// ``URLSessionTaskDelegate/urlSession(_:task:didCompleteWithError:)`` is called last, without an error where the
/// connection was closed by close frames.
public protocol URLSessionWebSocketDelegate: URLSessionTaskDelegate {
    /// Says that the opening handshake was made, and which of the offered subprotocols the server selected.
    func urlSession(
        _ session: URLSession,
        webSocketTask: URLSessionWebSocketTask,
        didOpenWithProtocol protocol: String?
    )

    /// Says that the server sent a close frame, by itself or in answer to
    /// ``URLSessionWebSocketTask/cancel(with:reason:)``.
    ///
    /// - Parameters:
    ///   - session: The session of the task.
    ///   - webSocketTask: The task.
    ///   - closeCode: The code of the frame, ``URLSessionWebSocketTask/CloseCode/noStatusReceived`` if it has none.
    ///   - reason: The reason of the frame in UTF-8, `nil` if it has none.
    func urlSession(
        _ session: URLSession,
        webSocketTask: URLSessionWebSocketTask,
        didCloseWith closeCode: URLSessionWebSocketTask.CloseCode,
        reason: Data?
    )
}

extension URLSessionWebSocketDelegate {
    /// Does nothing.
    public func urlSession(
        _ session: URLSession,
        webSocketTask: URLSessionWebSocketTask,
        didOpenWithProtocol protocol: String?
    ) {}

    /// Does nothing.
    public func urlSession(
        _ session: URLSession,
        webSocketTask: URLSessionWebSocketTask,
        didCloseWith closeCode: URLSessionWebSocketTask.CloseCode,
        reason: Data?
    ) {}
}

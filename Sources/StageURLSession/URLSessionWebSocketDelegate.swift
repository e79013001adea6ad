public import Foundation

/// Receiver of the events of WebSocket tasks, called on the session's delegate queue.
///
/// ``URLSessionTaskDelegate/urlSession(_:task:didCompleteWithError:)`` is called last, without an error if close
/// frames closed the connection.
public protocol URLSessionWebSocketDelegate: URLSessionTaskDelegate {
    /// Reports that the opening handshake succeeded, and the offered subprotocol that the server selected.
    func urlSession(
        _ session: URLSession,
        webSocketTask: URLSessionWebSocketTask,
        didOpenWithProtocol protocol: String?
    )

    /// Reports a close frame of the server, sent by itself or in response to
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

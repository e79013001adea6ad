import Foundation
import StageTransfer
import StageWebSocket
import StageWebSocketClient

extension URLError {
    /// The reason why a session in this process does not make a transfer that is known by its content, or has parts.
    static var backgroundTransfer: URLError {
        let reason =
            "only a background session makes downloads whose content is known, and uploads in parts: "
            + "use URLSessionConfiguration.background"
        return URLError(.unsupportedURL, reason: reason)
    }

    /// The reason why a background session takes no WebSocket tasks.
    static var backgroundWebSocket: URLError {
        let reason =
            "a background session has no WebSocket tasks, since a connection ends with its process: "
            + "use URLSessionConfiguration.default"
        return URLError(.unsupportedURL, reason: reason)
    }
}

extension POSIXError {
    /// The failure of a call on a WebSocket connection that was closed.
    static var webSocketIsClosed: POSIXError {
        POSIXError(.ENOTCONN, userInfo: [NSLocalizedDescriptionKey: "the connection is closed"])
    }
}

extension WebSocketClientError {
    /// Returns the error as Apple's class tells it, of a task with a URL; `wasOpen` says whether the opening handshake had
    /// been made.
    func taskError(url: URL?, wasOpen: Bool) -> any Error {
        if let code = connectionCode {
            return POSIXError(code, userInfo: [NSLocalizedDescriptionKey: "\(self)"])
        }
        let info = url.map { [NSURLErrorFailingURLErrorKey: $0] } ?? [:]
        return URLError(loadingCode(wasOpen), reason: "\(self)", userInfo: info)
    }

    /// The code of a failure of an open connection that is its peer's or the protocol's.
    private var connectionCode: POSIXErrorCode? {
        guard case .webSocket(let error) = self else { return nil }
        return switch error {
        case .frame, .invalidText, .invalidCompression, .tooManyEmptyFragments: .EPROTO
        case .tooLarge: .EMSGSIZE
        case .closed: .ENOTCONN
        case .handshake, .refused: nil
        }
    }

    private func loadingCode(_ wasOpen: Bool) -> URLError.Code {
        switch self {
        case .webSocket(.handshake(.argument)): .unsupportedURL
        case .webSocket: .badServerResponse
        case .lost: .networkConnectionLost
        case .silent, .slowHandshake: .timedOut
        case .cancelled: .cancelled
        // Of connections that are opened anew, which tasks do not have.
        case .closed, .notConnected, .retriesExhausted: .networkConnectionLost
        case .connection(let error):
            switch error {
            case .unacceptable: .unsupportedURL
            case .untrusted: .serverCertificateUntrusted
            case .refused: .badServerResponse
            case .cancelled: .cancelled
            default: wasOpen ? .networkConnectionLost : .cannotConnectToHost
            }
        }
    }
}

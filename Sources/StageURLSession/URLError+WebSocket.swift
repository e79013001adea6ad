import Foundation
import StageTransfer
import StageWebSocket
import StageWebSocketClient

extension URLError {
    /// Error of a session in this process for a transfer that only background sessions support.
    static var backgroundTransfer: URLError {
        let reason =
            "only a background session makes downloads whose content is known, and uploads in parts: "
            + "use URLSessionConfiguration.background"
        return URLError(.unsupportedURL, reason: reason)
    }

    /// Error of a task whose transfer needs a thread that the process may not create.
    static var lackOfThreads: URLError {
        URLError(.resourceUnavailable, reason: "the process may create no more threads")
    }

    /// Error of a WebSocket task of a background session.
    static var backgroundWebSocket: URLError {
        let reason =
            "a background session has no WebSocket tasks, since a connection ends with its process: "
            + "use URLSessionConfiguration.default"
        return URLError(.unsupportedURL, reason: reason)
    }
}

extension POSIXError {
    /// Error of a call on a closed WebSocket connection.
    static var webSocketIsClosed: POSIXError {
        POSIXError(.ENOTCONN, userInfo: [NSLocalizedDescriptionKey: "the connection is closed"])
    }
}

extension WebSocketClientError {
    /// Returns the error that Apple's class reports for a task with a URL; `wasOpen` is `true` if the opening
    /// handshake had succeeded.
    func taskError(url: URL?, wasOpen: Bool) -> any Error {
        if let code = connectionCode {
            return POSIXError(code, userInfo: [NSLocalizedDescriptionKey: "\(self)"])
        }
        let info = url.map { [NSURLErrorFailingURLErrorKey: $0] } ?? [:]
        return URLError(loadingCode(wasOpen), reason: "\(self)", userInfo: info)
    }

    /// Code for a failure of an open connection that the peer or the protocol caused.
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
        // Only reconnecting sockets have these errors, and tasks do not reconnect.
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

public import Foundation
import StageWebSocket

extension URLSessionWebSocketTask {
    /// A message.
    @nonexhaustive(warn)
    public enum Message: Sendable {
        /// Bytes.
        case data(Data)
        /// Text.
        case string(String)
    }

    /// Reason why a connection was closed, with the numbers of RFC 6455, section 7.4.
    @nonexhaustive(warn)
    public enum CloseCode: RawRepresentable, Hashable, Sendable {
        /// The connection is open, or ended without a close frame.
        case invalid
        /// The purpose of the connection is fulfilled.
        case normalClosure
        /// The endpoint goes away: a server shuts down, or a client leaves the page.
        case goingAway
        /// A frame violates the protocol.
        case protocolError
        /// The endpoint does not accept messages of this type.
        case unsupportedData
        /// The close frame had no code.
        case noStatusReceived
        /// There was no close frame.
        case abnormalClosure
        /// The content of a message does not match its type.
        case invalidFramePayloadData
        /// A message violates a policy of the endpoint.
        case policyViolation
        /// A message is too large.
        case messageTooBig
        /// The server did not accept an extension that the client requires.
        case mandatoryExtensionMissing
        /// The server encountered an unexpected condition.
        case internalServerError
        /// The TLS handshake failed.
        case tlsHandshakeFailure
        /// A code without a name here, such as those of applications from 3000 to 4999.
        ///
        /// Not part of Apple's type, which has such numbers without a case.
        case other(Int)

        private static let named: [CloseCode] = [
            .invalid, .normalClosure, .goingAway, .protocolError, .unsupportedData,
            .noStatusReceived, .abnormalClosure, .invalidFramePayloadData, .policyViolation,
            .messageTooBig, .mandatoryExtensionMissing, .internalServerError, .tlsHandshakeFailure,
        ]

        /// Creates the code with a number; never `nil`, as in Apple's type.
        public init?(rawValue: Int) { self.init(number: rawValue) }

        init(number: Int) {
            self = Self.named.first { $0.rawValue == number } ?? .other(number)
        }

        /// Number of the code.
        public var rawValue: Int {
            switch self {
            case .invalid: 0
            case .normalClosure: 1000
            case .goingAway: 1001
            case .protocolError: 1002
            case .unsupportedData: 1003
            case .noStatusReceived: 1005
            case .abnormalClosure: 1006
            case .invalidFramePayloadData: 1007
            case .policyViolation: 1008
            case .messageTooBig: 1009
            case .mandatoryExtensionMissing: 1010
            case .internalServerError: 1011
            case .tlsHandshakeFailure: 1015
            case .other(let number): number
            }
        }
    }
}

extension URLSessionWebSocketTask.Message {
    init(_ message: WebSocketMessage) {
        switch message {
        case .text(let text): self = .string(text)
        case .binary(let bytes): self = .data(Data(bytes))
        }
    }

    /// The message as `StageWebSocketClient` represents it.
    var content: WebSocketMessage {
        switch self {
        case .data(let data): .binary([UInt8](data))
        case .string(let text): .text(text)
        }
    }
}

extension WebSocketClose {
    init(code: URLSessionWebSocketTask.CloseCode, reason: Data?) {
        // A number that no close frame may have is omitted from it.
        let number = UInt16(exactly: code.rawValue) ?? 0
        self.init(
            code: CloseCode(rawValue: number),
            reason: reason.map { String(decoding: $0, as: UTF8.self) } ?? ""
        )
    }

    /// The code as the task represents it.
    var taskCode: URLSessionWebSocketTask.CloseCode {
        code.map { .init(number: Int($0.rawValue)) } ?? .noStatusReceived
    }

    /// The reason as the task represents it.
    var taskReason: Data? { reason.isEmpty ? nil : Data(reason.utf8) }
}

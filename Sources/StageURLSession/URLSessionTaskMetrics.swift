public import Foundation
public import FoundationNetworking
import StageControl
import StageModel

/// Metrics of a task.
public final class URLSessionTaskMetrics: NSObject, Sendable {
    /// Foundation's type for the kinds of a resource's origin.
    public typealias ResourceFetchType = FoundationNetworking.URLSessionTaskMetrics
        .ResourceFetchType
    /// Foundation's type for the protocols that names are looked up with.
    public typealias DomainResolutionProtocol =
        FoundationNetworking.URLSessionTaskMetrics.DomainResolutionProtocol

    /// From the first attempt, or the end where there was none, to the end of the task.
    public let taskInterval: DateInterval
    /// The number of redirects that the last attempt followed.
    public let redirectCount: Int
    /// The last attempt that was answered, if one was; earlier ones are not recorded one by one.
    public let transactionMetrics: [URLSessionTaskTransactionMetrics]
    /// The number of requests to servers.
    ///
    /// Not of Apple's class.
    public let attemptCount: Int
    /// The bytes of bodies that were received, failed attempts included.
    ///
    /// Not of Apple's class.
    public let countOfBytesReceived: Int64
    /// The bytes of bodies that were sent, failed attempts included.
    ///
    /// Not of Apple's class.
    public let countOfBytesSent: Int64

    init(_ metrics: TransferMetrics, request: URLRequest?, response: URLResponse?) {
        let start = min(metrics.started ?? metrics.ended, metrics.ended)
        taskInterval = DateInterval(start: start, end: metrics.ended)
        redirectCount = metrics.redirects
        attemptCount = metrics.attempts
        countOfBytesReceived = metrics.bytesReceived.rawValue
        countOfBytesSent = metrics.bytesSent.rawValue
        if let request, let response {
            let attempt = metrics.attempt ?? AttemptMetrics()
            transactionMetrics = [
                URLSessionTaskTransactionMetrics(attempt, request: request, response: response)
            ]
        } else {
            transactionMetrics = []
        }
    }
}

/// Metrics of one attempt; a date or text that was not measured is `nil`, a number 0.
///
/// Unchecked, since `URLRequest` and `URLResponse` are values and objects that do not change.
public final class URLSessionTaskTransactionMetrics: NSObject, @unchecked Sendable {
    /// The request.
    public let request: URLRequest
    /// The head of the answer.
    public let response: URLResponse?
    private let attempt: AttemptMetrics

    init(_ attempt: AttemptMetrics, request: URLRequest, response: URLResponse?) {
        self.request = request
        self.response = response
        self.attempt = attempt
    }

    /// When the last request of the attempt began, after redirects.
    public var fetchStartDate: Date? { attempt.fetchStart }
    /// When the lookup of the host's name began; `nil` on a connection that was open.
    public var domainLookupStartDate: Date? { isReusedConnection ? nil : attempt.fetchStart }
    /// When the lookup of the host's name ended.
    public var domainLookupEndDate: Date? { isReusedConnection ? nil : date(attempt.nameLookup) }
    /// When the connection's set-up began.
    public var connectStartDate: Date? { isReusedConnection ? nil : date(attempt.nameLookup) }
    /// When the TLS handshake began.
    public var secureConnectionStartDate: Date? {
        attempt.secureConnect.flatMap { _ in date(attempt.connect) }
    }
    /// When the TLS handshake ended.
    public var secureConnectionEndDate: Date? { date(attempt.secureConnect) }
    /// When the connection was set up, TLS included.
    public var connectEndDate: Date? { date(attempt.secureConnect ?? attempt.connect) }
    /// When the request began to be sent.
    public var requestStartDate: Date? { date(attempt.requestStart) }
    /// When the request was sent; `nil` for one with a body, whose last byte is not timed.
    public var requestEndDate: Date? {
        countOfRequestBodyBytesSent == 0 ? requestStartDate : nil
    }
    /// When the first byte of the answer was here.
    public var responseStartDate: Date? { date(attempt.firstByte) ?? attempt.responseStart }
    /// When the attempt ended.
    public var responseEndDate: Date? { attempt.responseEnd }
    /// The protocol's name as in ALPN: `http/1.1`, `h2` or `h3`.
    public var networkProtocolName: String? { attempt.networkProtocol }
    /// Whether the connection was open already.
    public var isReusedConnection: Bool { attempt.isReusedConnection ?? false }
    /// Whether several paths were used at once: never.
    public var isMultipath: Bool { false }
    /// The protocol of the lookup of the host's name, which the system's resolver does not tell.
    public var domainResolutionProtocol: URLSessionTaskMetrics.DomainResolutionProtocol { .unknown }
    /// The source of the content: the network.
    public var resourceFetchType: URLSessionTaskMetrics.ResourceFetchType { .networkLoad }
    /// The address that answered: the server's, or a proxy's.
    public var remoteAddress: String? { attempt.remoteAddress }
    /// The port that answered.
    public var remotePort: Int? { attempt.remotePort }
    /// The address of this machine.
    public var localAddress: String? { attempt.localAddress }
    /// The port of this machine.
    public var localPort: Int? { attempt.localPort }
    /// The bytes of the request's head, with heads of requests that were redirected.
    public var countOfRequestHeaderBytesSent: Int64 { attempt.requestHeaderBytes ?? 0 }
    /// The bytes of the request's body.
    public var countOfRequestBodyBytesSent: Int64 { attempt.bytesSent ?? 0 }
    /// The bytes of the request's body before it is encoded; the daemon encodes none.
    public var countOfRequestBodyBytesBeforeEncoding: Int64 { attempt.bytesSent ?? 0 }
    /// The bytes of the heads of answers.
    public var countOfResponseHeaderBytesReceived: Int64 { attempt.responseHeaderBytes ?? 0 }
    /// The bytes of the content that are here, those of earlier attempts included.
    public var countOfResponseBodyBytesReceived: Int64 { attempt.bytesReceived ?? 0 }
    /// The bytes of the content after decoding; the daemon asks for none that is encoded.
    public var countOfResponseBodyBytesAfterDecoding: Int64 { attempt.bytesReceived ?? 0 }

    /// Refuses: it is not known.
    @available(*, unavailable, message: "the daemon does not record proxies; compare remoteAddress")
    public var isProxyConnection: Bool { preconditionFailure("unavailable") }
    /// Refuses: it is not known.
    @available(*, unavailable, message: "a network is metered or not on Linux: see task.holds")
    public var isCellular: Bool { preconditionFailure("unavailable") }
    /// Refuses: it is not known.
    @available(*, unavailable, message: "the daemon records no networks: see task.holds")
    public var isExpensive: Bool { preconditionFailure("unavailable") }
    /// Refuses: it is not known.
    @available(*, unavailable, message: "the daemon records no networks: see task.holds")
    public var isConstrained: Bool { preconditionFailure("unavailable") }
    /// Refuses: it is not known.
    @available(
        *,
        unavailable,
        message: "the daemon does not record TLS: set tlsMinimumSupportedProtocolVersion"
    )
    public var negotiatedTLSProtocolVersion: tls_protocol_version_t? {
        preconditionFailure("unavailable")
    }
    /// Refuses: it is not known.
    @available(
        *,
        unavailable,
        message: "the daemon does not record TLS: set tlsMinimumSupportedProtocolVersion"
    )
    public var negotiatedTLSCipherSuite: tls_ciphersuite_t? { preconditionFailure("unavailable") }

    /// The date so many seconds after the attempt began, and not after it ended: the beginning is noted a little later
    /// than the seconds begin to count.
    private func date(_ seconds: Double?) -> Date? {
        guard let start = attempt.fetchStart, let seconds else { return nil }
        return min(start + seconds, attempt.responseEnd ?? .distantFuture)
    }
}

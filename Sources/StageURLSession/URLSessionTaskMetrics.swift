public import Foundation
public import FoundationNetworking
import StageControl
import StageModel

/// Metrics of a task.
public final class URLSessionTaskMetrics: NSObject, Sendable {
    /// Foundation's type for the source of a resource.
    public typealias ResourceFetchType = FoundationNetworking.URLSessionTaskMetrics
        .ResourceFetchType
    /// Foundation's type for protocols of name lookups.
    public typealias DomainResolutionProtocol =
        FoundationNetworking.URLSessionTaskMetrics.DomainResolutionProtocol

    /// Time from the first attempt, or the end if there was none, to the end of the task.
    public let taskInterval: DateInterval
    /// Number of redirects of the last attempt.
    public let redirectCount: Int
    /// The last attempt that got a response, if one did; earlier ones are not recorded individually.
    public let transactionMetrics: [URLSessionTaskTransactionMetrics]
    /// Number of requests to servers.
    ///
    /// Not part of Apple's class.
    public let attemptCount: Int
    /// Body bytes received, failed attempts included.
    ///
    /// Not part of Apple's class.
    public let countOfBytesReceived: Int64
    /// Body bytes sent, failed attempts included.
    ///
    /// Not part of Apple's class.
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
    /// The head of the response.
    public let response: URLResponse?
    private let attempt: AttemptMetrics

    init(_ attempt: AttemptMetrics, request: URLRequest, response: URLResponse?) {
        self.request = request
        self.response = response
        self.attempt = attempt
    }

    /// Start of the last request of the attempt, after redirects.
    public var fetchStartDate: Date? { attempt.fetchStart }
    /// Start of the name lookup; `nil` on a reused connection.
    public var domainLookupStartDate: Date? { isReusedConnection ? nil : attempt.fetchStart }
    /// End of the name lookup.
    public var domainLookupEndDate: Date? { isReusedConnection ? nil : date(attempt.nameLookup) }
    /// Start of the connection setup.
    public var connectStartDate: Date? { isReusedConnection ? nil : date(attempt.nameLookup) }
    /// Start of the TLS handshake.
    public var secureConnectionStartDate: Date? {
        attempt.secureConnect.flatMap { _ in date(attempt.connect) }
    }
    /// End of the TLS handshake.
    public var secureConnectionEndDate: Date? { date(attempt.secureConnect) }
    /// End of the connection setup, TLS included.
    public var connectEndDate: Date? { date(attempt.secureConnect ?? attempt.connect) }
    /// Start of sending the request.
    public var requestStartDate: Date? { date(attempt.requestStart) }
    /// End of sending the request; `nil` for one with a body, whose last byte is not timed.
    public var requestEndDate: Date? {
        countOfRequestBodyBytesSent == 0 ? requestStartDate : nil
    }
    /// Arrival of the first byte of the response.
    public var responseStartDate: Date? { date(attempt.firstByte) ?? attempt.responseStart }
    /// End of the attempt.
    public var responseEndDate: Date? { attempt.responseEnd }
    /// ALPN name of the protocol: `http/1.1`, `h2` or `h3`.
    public var networkProtocolName: String? { attempt.networkProtocol }
    /// `true` if the connection was already open.
    public var isReusedConnection: Bool { attempt.isReusedConnection ?? false }
    /// `true` if several paths were used at once: never.
    public var isMultipath: Bool { false }
    /// Protocol of the name lookup, which the system's resolver does not report.
    public var domainResolutionProtocol: URLSessionTaskMetrics.DomainResolutionProtocol { .unknown }
    /// Source of the content: the network.
    public var resourceFetchType: URLSessionTaskMetrics.ResourceFetchType { .networkLoad }
    /// Address of the server, or of the proxy.
    public var remoteAddress: String? { attempt.remoteAddress }
    /// Port of the server, or of the proxy.
    public var remotePort: Int? { attempt.remotePort }
    /// Local address.
    public var localAddress: String? { attempt.localAddress }
    /// Local port.
    public var localPort: Int? { attempt.localPort }
    /// Size of the request's head in bytes, with the heads of redirected requests.
    public var countOfRequestHeaderBytesSent: Int64 { attempt.requestHeaderBytes ?? 0 }
    /// Size of the request's body in bytes.
    public var countOfRequestBodyBytesSent: Int64 { attempt.bytesSent ?? 0 }
    /// Size of the request's body before it is encoded; no body is encoded.
    public var countOfRequestBodyBytesBeforeEncoding: Int64 { attempt.bytesSent ?? 0 }
    /// Size of the response heads in bytes.
    public var countOfResponseHeaderBytesReceived: Int64 { attempt.responseHeaderBytes ?? 0 }
    /// Number of content bytes received, those of earlier attempts included; in a session in this process they are
    /// counted after decoding.
    public var countOfResponseBodyBytesReceived: Int64 { attempt.bytesReceived ?? 0 }
    /// Size of the content after decoding; the daemon requests no codings, and counts the same bytes.
    public var countOfResponseBodyBytesAfterDecoding: Int64 { attempt.bytesReceived ?? 0 }

    /// Unavailable: not recorded.
    @available(*, unavailable, message: "the daemon does not record proxies; compare remoteAddress")
    public var isProxyConnection: Bool { preconditionFailure("unavailable") }
    /// Unavailable: not recorded.
    @available(
        *,
        unavailable,
        message: "a network is metered or not on Linux: see task.pendingReasons"
    )
    public var isCellular: Bool { preconditionFailure("unavailable") }
    /// Unavailable: not recorded.
    @available(*, unavailable, message: "the daemon records no networks: see task.pendingReasons")
    public var isExpensive: Bool { preconditionFailure("unavailable") }
    /// Unavailable: not recorded.
    @available(*, unavailable, message: "the daemon records no networks: see task.pendingReasons")
    public var isConstrained: Bool { preconditionFailure("unavailable") }
    /// Unavailable: not recorded.
    @available(
        *,
        unavailable,
        message: "the daemon does not record TLS: set tlsMinimumSupportedProtocolVersion"
    )
    public var negotiatedTLSProtocolVersion: tls_protocol_version_t? {
        preconditionFailure("unavailable")
    }
    /// Unavailable: not recorded.
    @available(
        *,
        unavailable,
        message: "the daemon does not record TLS: set tlsMinimumSupportedProtocolVersion"
    )
    public var negotiatedTLSCipherSuite: tls_ciphersuite_t? { preconditionFailure("unavailable") }

    /// Returns the date the given seconds after the attempt began, at most its end: the start is recorded slightly
    /// later than libcurl's clock starts.
    private func date(_ seconds: Double?) -> Date? {
        guard let start = attempt.fetchStart, let seconds else { return nil }
        return min(start + seconds, attempt.responseEnd ?? .distantFuture)
    }
}

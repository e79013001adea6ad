import CCurl

/// Result of an exchange.
struct ExchangeEnd: Sendable {
    /// libcurl's result code; `nil` if the exchange was cancelled.
    var code: CURLcode?
    /// libcurl's error message.
    var detail = ""
    /// Facts about the connection, if libcurl ended the exchange with an error.
    var connection: FailedConnection?
    /// Verification result of the certificate of the server, or of the proxy (`X509_V_…`).
    var certificate = 0
    /// Status by which a proxy refused to connect to the server; 0 if it did not.
    var proxyStatus = 0
    /// Number of body bytes that were received.
    var bytes: Int64 = 0
    /// Time in which too few bytes arrived, if the engine ended the exchange for that.
    var stalled: Duration?
    /// `true` if libcurl sent at least a part of a request.
    var wasRequestSent = false
    /// `true` if libcurl was asked to decode the response body.
    var decodesContent = false
    /// Description of an invalid response that ended the exchange, as a sentence fragment.
    var fault: String?

    /// `true` if the response is complete by HTTP's framing.
    var isComplete: Bool { code == CURLE_OK }
}

public import StageModel
public import StageSystem

/// An HTTP request that is sent once, and whose response is streamed to the caller.
///
/// No status is a failure, and redirects are not followed: ``redirection(by:step:)`` returns the next request.
public struct StreamedRequest: Sendable {
    /// Absolute http or https URL.
    public var url: String
    /// Method in capitals; any but `CONNECT`.
    public var method = "GET"
    /// Opens the regular file that is sent as the body, with the size that it then has; `nil` for no body.
    public var body: (@Sendable () throws(FileError) -> File)?
    /// Header fields, each as one line.
    ///
    /// The engine sets `Content-Length`, `Expect` and `Transfer-Encoding`.
    public var fields: [String] = []
    /// Time without a byte in either direction after which the request fails; `nil` applies the engine's
    /// ``StallRule``.
    public var timeout: Duration?
    /// Order among requests that wait for a connection: higher values come first.
    public var priority = 0
    /// `true` to require TLS 1.3 instead of 1.2 or later.
    public var requiresNewestTLS = false
    /// `true` to decode the response body from the content codings that libcurl supports (RFC 9110, section 8.4).
    ///
    /// The request offers them, unless a field `Accept-Encoding` overrides that.
    public var decodesContent = true
    /// `true` if the engine's credentials for the URL may be sent.
    public var allowsCredentials = true
    /// Limit on the received bytes that are not yet processed.
    ///
    /// The caller removes processed bytes; while it is full, the server has to wait.
    public var receiveWindow = ReceiveWindow(limit: .mebibytes(1))
    /// Receives the events of the request, in order, on the engine's thread; it must return at once.
    public var receive: @Sendable (StreamedEvent) -> Void

    /// Creates a request without a body.
    public init(url: String, receive: @escaping @Sendable (StreamedEvent) -> Void) {
        self.url = url
        self.receive = receive
    }
}

/// An event of a ``StreamedRequest``.
@nonexhaustive
public enum StreamedEvent: Sendable {
    /// The request is being sent over a connection.
    case began
    /// The network accepted this many bytes of the request's body.
    case sent(ByteCount)
    /// Head of the final response.
    case head(ResponseSummary)
    /// Next bytes of the response body.
    case bytes([UInt8])
}

/// The request that follows a redirect response to a ``StreamedRequest``.
public struct Redirection: Equatable, Sendable {
    /// Absolute URL without a user's name and password.
    public var url: String
    /// Method of the next request (RFC 9110, section 15.4).
    public var method: String
    /// `true` if the next request repeats the body.
    public var keepsBody: Bool
    /// `true` if the URL has the same origin, so that it may receive the same credentials (RFC 6454, section 5).
    public var isSameOrigin: Bool
}

extension StreamedRequest {
    /// Returns the request that a redirect response leads to.
    ///
    /// - Parameters:
    ///   - head: The response to the request.
    ///   - step: The number of redirects, this one included.
    /// - Returns: The next request; `nil` for a response that is not a redirect.
    /// - Throws: ``TransferError/unacceptable(url:_:)`` if the redirect leads from https to http, or to a URL that is
    ///   neither, or is the eleventh.
    public func redirection(
        by head: ResponseSummary,
        step: Int
    ) throws(TransferError) -> Redirection? {
        guard [301, 302, 303, 307, 308].contains(head.status),
            let location = head.value(of: "Location"), !location.isEmpty
        else { return nil }
        let url = try TransferURL(url)
        let target = try RedirectRules().target(of: location, from: url, step: step)
        let next = RedirectRules.method(after: head.status, of: method)
        return Redirection(
            url: target.display,
            method: next,
            keepsBody: next == method && head.status != 303,
            isSameOrigin: target.hasSameOrigin(as: url)
        )
    }
}

public import StageModel
public import StageSystem

/// An HTTP request that is sent once, whose answer the caller takes as it comes.
///
/// No status is a failure, and no redirect is followed: ``redirection(by:step:)`` says where one leads.
public struct StreamedRequest: Sendable {
    /// Absolute http or https URL.
    public var url: String
    /// Method in capitals; any but `CONNECT`.
    public var method = "GET"
    /// Opens the regular file whose bytes are the request's body, as many as it has then; `nil` for no body.
    public var body: (@Sendable () throws(FileError) -> File)?
    /// Header fields, each as one line.
    ///
    /// `Content-Length`, `Expect` and `Transfer-Encoding` are the engine's to set.
    public var fields: [String] = []
    /// Time without a byte in either direction after which the request fails; `nil` stands for the engine's
    /// ``StallRule``.
    public var timeout: Duration?
    /// Orders requests that wait for a connection: higher comes first.
    public var priority = 0
    /// Whether a server that does not speak TLS 1.3 is refused; else 1.2 will do.
    public var requiresNewestTLS = false
    /// Whether the body of the answer is decoded from the content codings that libcurl knows (RFC 9110, section 8.4).
    ///
    /// They are offered, unless a field `Accept-Encoding` says otherwise.
    public var decodesContent = true
    /// Whether the engine's credentials for the URL may be sent.
    public var allowsCredentials = true
    /// The bytes of the answer that were handed over and not yet processed, which the caller removes; while it is full, the
    /// server has to wait.
    public var backlog = Backlog(limit: .mebibytes(1))
    /// Called on the engine's thread with what happens, in order; it must return at once.
    public var receive: @Sendable (StreamedEvent) -> Void

    /// Creates a request without a body.
    public init(url: String, receive: @escaping @Sendable (StreamedEvent) -> Void) {
        self.url = url
        self.receive = receive
    }
}

/// Something that happens to a ``StreamedRequest``.
public enum StreamedEvent: Sendable {
    /// The request is being sent over a connection.
    case began
    /// So many bytes of the request's body were handed to the network.
    case sent(ByteCount)
    /// The head of the final answer.
    case head(ResponseSummary)
    /// The next bytes of the answer's body.
    case bytes([UInt8])
}

/// The request that the answer to a ``StreamedRequest`` leads to.
public struct Redirection: Equatable, Sendable {
    /// Absolute URL without a user's name and password.
    public var url: String
    /// Method of the next request (RFC 9110, section 15.4).
    public var method: String
    /// Whether the next request has the body of the one before.
    public var keepsBody: Bool
    /// Whether the URL has the origin of the one before, so that it may have its credentials (RFC 6454, section 5).
    public var isSameOrigin: Bool
}

extension StreamedRequest {
    /// Finds where an answer leads.
    ///
    /// - Parameters:
    ///   - head: The answer to the request.
    ///   - step: The number of redirects, this one included.
    /// - Returns: The next request; `nil` for an answer that is no redirect.
    /// - Throws: ``TransferError/unacceptable(url:_:)`` where it leads from https to http, to no http or https URL, or
    ///   there were more than ten.
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

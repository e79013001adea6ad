package import StageModel

/// Status and header fields of a response.
public struct ResponseSummary: Equatable, Sendable {
    /// URL that answered, after redirects, without user name and password.
    public var url: String
    /// HTTP status code.
    public var status: Int
    /// Header fields in order of arrival; a name may occur more than once.
    public var fields: [HeaderField]
    /// Number of redirects before this response.
    public var redirects: Int
    /// Connection that the response came over, if libcurl made it.
    public var connection: ConnectionSummary?

    /// Returns whether a status is that of a temporary failure (RFC 9110, section 15; RFC 6585; RFC 8470).
    ///
    /// An unregistered 5xx status counts as 500 (RFC 9110, section 15): content delivery networks have some for a server that
    /// they cannot reach.
    package static func isTransient(_ status: Int) -> Bool {
        let isServerError = (500..<600).contains(status) && !lastingServerErrors.contains(status)
        return isServerError || [408, 425, 429].contains(status)
    }

    /// Registered 5xx statuses that another attempt would receive again.
    private static let lastingServerErrors: Set<Int> = [501, 505, 506, 507, 508, 510, 511]

    /// Creates a summary from its parts.
    public init(url: String, status: Int, fields: [HeaderField], redirects: Int) {
        self.url = url
        self.status = status
        self.fields = fields
        self.redirects = redirects
    }

    /// Returns the value of the first field of a name, ignoring case; `nil` if there is none.
    public func value(of name: String) -> String? {
        let name = name.lowercased()
        return fields.first { $0.name.lowercased() == name }?.value
    }

    /// Total size of the content, from the `Content-Range` of a 206 or from `Content-Length`; `nil` without a usable one.
    package var contentTotal: ByteCount? {
        guard status == 206 else {
            return value(of: "Content-Length").flatMap { ContentRange.number($0[...]) }
                .map { ByteCount($0) }
        }
        guard case .bytes(_, let total?)? = value(of: "Content-Range").map({ ContentRange($0) })
        else { return nil }
        return ByteCount(total)
    }
}

/// A header field of a response.
public struct HeaderField: Hashable, Sendable {
    /// Name as the server spelled it.
    public var name: String
    /// Value without surrounding white space.
    public var value: String

    /// Creates a field from its parts.
    public init(name: String, value: String) {
        self.name = name
        self.value = value
    }
}

extension ResponseSummary {
    /// Creates the summary of the response at the end of a redirect chain.
    init(_ head: ResponseHead, at redirects: RedirectChain) {
        self.init(
            url: redirects.url.display,
            status: head.status,
            fields: head.fields,
            redirects: redirects.steps
        )
        connection = head.connection
    }
}

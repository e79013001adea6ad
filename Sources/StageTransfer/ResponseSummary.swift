/// What a server says before the body of its answer.
public struct ResponseSummary: Equatable, Sendable {
    /// The URL that answered, after redirects, without a user's name and password.
    public var url: String
    /// The status.
    public var status: Int
    /// The header fields in their order; a name may be there more than once.
    public var fields: [HeaderField]
    /// How many redirects led here.
    public var redirects: Int
    /// The connection that the answer came over, where libcurl made it.
    public var connection: ConnectionSummary?

    /// The statuses of failures that may pass (RFC 9110, section 15; RFC 6585; RFC 8470).
    package static let transientStatuses: Set<Int> = [408, 425, 429, 500, 502, 503, 504]

    /// Creates a summary from its parts.
    public init(url: String, status: Int, fields: [HeaderField], redirects: Int) {
        self.url = url
        self.status = status
        self.fields = fields
        self.redirects = redirects
    }

    /// Returns the value of the first field of a name, in whatever case, or `nil` if there is none.
    public func value(of name: String) -> String? {
        let name = name.lowercased()
        return fields.first { $0.name.lowercased() == name }?.value
    }
}

/// A line of the head of an answer.
public struct HeaderField: Hashable, Sendable {
    /// The name as the server spelled it.
    public var name: String
    /// The value, without blanks around it.
    public var value: String

    /// Creates a field from its parts.
    public init(name: String, value: String) {
        self.name = name
        self.value = value
    }
}

extension ResponseSummary {
    /// Sums up the answer that a route led to.
    init(_ head: ResponseHead, at route: Route) {
        self.init(
            url: route.url.display,
            status: head.status,
            fields: head.fields,
            redirects: route.steps
        )
        connection = head.connection
    }
}

import Foundation
import FoundationNetworking
import StageModel
import StageWebSocket
import StageWebSocketClient

/// Opening handshake of a WebSocket task: its URL and options.
struct WebSocketRequest {
    /// The URL.
    let url: String
    /// Offers of the handshake, and limits.
    var options = WebSocketOptions()

    /// Creates the handshake for a request with the session's configuration.
    init(_ request: URLRequest, rules: URLSessionConfiguration, messageSize: Int) {
        let url = request.url?.absoluteURL.overHTTP
        self.url = url?.absoluteString ?? ""
        let timeout = request.timeout(under: rules)
        options.handshakeTimeout = .limit(timeout)
        options.pingInterval = .limit(timeout / 2)
        options.limits = WebSocketLimits(messageSize: max(messageSize, 0))
        options.requiresNewestTLS = rules.tlsMinimumSupportedProtocolVersion == .TLSv13
        let fields = request.fields(under: rules)
        for (name, value) in fields.sorted(by: { $0.key < $1.key }) {
            if name.lowercased() == "sec-websocket-protocol" {
                options.subprotocols = value.split(separator: ",")
                    .map { $0.trimmingCharacters(in: .whitespaces) }
            } else if !ClientHandshake.isOwn(name) {
                options.fields.append(WebSocketField(name: name, value: value))
            }
        }
    }

    /// Returns the reason why a request cannot open a connection; `nil` if it can.
    static func problem(of request: URLRequest) -> URLError? {
        if request.httpMethod ?? "GET" != "GET" || request.httpBody != nil
            || request.httpBodyStream != nil
        {
            return URLError(
                .unsupportedURL,
                reason: "a WebSocket task sends a GET request without a body"
            )
        }
        let schemes = ["ws", "wss", "http", "https"]
        guard !schemes.contains(request.url?.scheme?.lowercased() ?? "") else { return nil }
        let found = request.url?.absoluteString ?? ""
        return URLError(.unsupportedURL, reason: "expected a ws or wss URL, found '\(found)'")
    }
}

extension URLRequest {
    /// Default timeout of `URLRequest`, in seconds; a request that has it uses the session's timeout.
    private static let usualTimeout: TimeInterval = 60

    /// Returns the timeout of the request in seconds, its own or its session's.
    func timeout(under rules: URLSessionConfiguration) -> TimeInterval {
        timeoutInterval == Self.usualTimeout ? rules.timeoutIntervalForRequest : timeoutInterval
    }

    /// Returns the header fields of the request, with those of its session and its cookies unless it sets them
    /// itself.
    ///
    /// - Parameters:
    ///   - rules: The configuration of the session.
    ///   - omitted: Names of session fields, in lower case, that are left out.
    /// - Returns: The values by name.
    func fields(
        under rules: URLSessionConfiguration,
        leavingOut omitted: Set<String> = []
    ) -> [String: String] {
        var fields = allHTTPHeaderFields ?? [:]
        func add(_ name: String, value: String) {
            let isThere = fields.keys.contains { $0.lowercased() == name.lowercased() }
            if !isThere { fields[name] = value }
        }
        for (name, value) in rules.httpAdditionalHeaders ?? [:] {
            let name = "\(name.base)"
            if !omitted.contains(name.lowercased()) { add(name, value: "\(value)") }
        }
        if rules.httpShouldSetCookies, httpShouldHandleCookies, let url = url?.absoluteURL.overHTTP,
            let cookies = rules.httpCookieStorage?.cookiesToSend(to: url), !cookies.isEmpty
        {
            for (name, value) in HTTPCookie.requestHeaderFields(with: cookies) {
                add(name, value: value)
            }
        }
        return fields
    }
}

extension Duration {
    /// Returns a duration for a time limit in seconds, which may be infinite.
    static func limit(_ seconds: TimeInterval) -> Duration { .seconds(seconds.withinLimits) }
}

extension TimeInterval {
    /// The seconds, at least a millisecond and at most about 31 years; infinity and NaN become the maximum.
    var withinLimits: TimeInterval { isNaN ? 1e9 : Swift.min(Swift.max(self, 0.001), 1e9) }
}

extension URL {
    /// The http or https URL of the request that opens a WebSocket connection (RFC 6455, section 3); other URLs
    /// unchanged.
    var overHTTP: URL {
        let other = ["ws": "http", "wss": "https"][scheme?.lowercased() ?? ""]
        guard let other, var parts = URLComponents(url: self, resolvingAgainstBaseURL: true) else {
            return self
        }
        parts.scheme = other
        return parts.url ?? self
    }
}

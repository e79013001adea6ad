import StageWebSocket
import Synchronization

/// Decides which requests the echo endpoint accepts, and counts its connections.
final class EchoAdmission: Sendable {
    private let limit: Int
    private let count = Mutex(0)

    /// Creates an admission with a maximum number of open connections.
    init(limit: Int) { self.limit = limit }

    /// Returns the answer to a request; an accepted one counts until ``release()``.
    ///
    /// Web pages can open WebSocket connections to any server, and state their origin in `Origin` (RFC 6455, section
    /// 10.2). Another origin is refused with status 403. Other programs send no `Origin`.
    func answer(to request: HTTPHead) -> ServerHandshake.Answer {
        guard Self.isOfSameOrigin(request) else {
            return ServerHandshake.refusal(403, reason: "Forbidden")
        }
        let answer = ServerHandshake().answer(to: request)
        guard case .accept = answer else { return answer }
        let isAdmitted = count.withLock { count in
            guard count < limit else { return false }
            count += 1
            return true
        }
        if isAdmitted { return answer }
        let pause = WebSocketField(name: "Retry-After", value: "1")
        return ServerHandshake.refusal(503, reason: "Service Unavailable", fields: [pause])
    }

    /// Stops counting an accepted connection.
    func release() { count.withLock { $0 -= 1 } }

    /// Returns whether a request has no origin, or that of its own host and port.
    private static func isOfSameOrigin(_ request: HTTPHead) -> Bool {
        let origins = request.values(of: "Origin")
        guard !origins.isEmpty else { return true }
        let hosts = request.values(of: "Host").map { $0.lowercased() }
        guard origins.count == 1, hosts.count == 1 else { return false }
        let origin = origins[0].lowercased()
        for (scheme, port) in [("http://", ":80"), ("https://", ":443")]
        where origin.hasPrefix(scheme) {
            let authority = String(origin.dropFirst(scheme.count))
            // An origin omits the default port (RFC 6454, section 6.2), but a 'Host' field may include it.
            return authority == hosts[0] || authority + port == hosts[0]
        }
        return false
    }
}

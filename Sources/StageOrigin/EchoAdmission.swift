import StageWebSocket
import Synchronization

/// Decides which requests the echo accepts, and counts its connections.
final class EchoAdmission: Sendable {
    private let limit: Int
    private let count = Mutex(0)

    /// Creates an echo of which `limit` connections may be open at once.
    init(limit: Int) { self.limit = limit }

    /// Returns the answer to a request; one that accepts counts until ``release()``.
    ///
    /// A page in a browser may open WebSocket connections to any server, and says in `Origin` where it is from (RFC 6455,
    /// section 10.2). One of another origin is refused with status 403. Programs send no `Origin`.
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

    /// Ends the count of a connection that was accepted.
    func release() { count.withLock { $0 -= 1 } }

    /// Whether a request has no origin, or the host and port that it is sent to.
    private static func isOfSameOrigin(_ request: HTTPHead) -> Bool {
        let origins = request.values(of: "Origin")
        guard !origins.isEmpty else { return true }
        let hosts = request.values(of: "Host").map { $0.lowercased() }
        guard origins.count == 1, hosts.count == 1 else { return false }
        let origin = origins[0].lowercased()
        for (scheme, port) in [("http://", ":80"), ("https://", ":443")]
        where origin.hasPrefix(scheme) {
            let authority = String(origin.dropFirst(scheme.count))
            // An origin leaves out the usual port (RFC 6454, section 6.2), which a 'Host' field may have.
            return authority == hosts[0] || authority + port == hosts[0]
        }
        return false
    }
}

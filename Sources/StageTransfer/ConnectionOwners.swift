/// Users whose connections libcurl keeps for later requests, by server.
///
/// A socket belongs to the user for whom it was opened, and libcurl gives a kept connection to the next request for its
/// server. So a server's connections are kept for one user at a time, the owner. Each request of another user opens a
/// connection, which is closed after it.
struct ConnectionOwners {
    private struct Owner {
        var user: UInt32?
        var running: Int
        var lastEnd: SuspendingClock.Instant

        /// Returns whether libcurl has none of the owner's connections.
        func hasExpired(at now: SuspendingClock.Instant) -> Bool {
            running == 0 && now - lastEnd > ConnectionOwners.idleTime
        }
    }

    private var owners: [String: Owner] = [:]

    /// Begins a request, and returns whether it may use and leave kept connections; if so, ``end(server:at:)`` follows.
    ///
    /// - Parameters:
    ///   - user: The user of the request; `nil` for the process's own.
    ///   - server: The key of the server or proxy (``TransferConfiguration/connectionKey(for:)``).
    ///   - now: The current time.
    /// - Returns: `true` if the user owns the kept connections, `false` if another user does.
    mutating func begin(
        _ user: UInt32?,
        server: String,
        at now: SuspendingClock.Instant
    ) -> Bool {
        if let owner = owners[server], !owner.hasExpired(at: now) {
            guard owner.user == user else { return false }
            owners[server]?.running += 1
            return true
        }
        if owners.count >= Self.limit { owners = owners.filter { !$0.value.hasExpired(at: now) } }
        guard owners.count < Self.limit else { return false }
        owners[server] = Owner(user: user, running: 1, lastEnd: now)
        return true
    }

    /// Ends a request for which ``begin(_:server:at:)`` returned `true`, after libcurl has taken back its connection.
    mutating func end(server: String, at now: SuspendingClock.Instant) {
        owners[server]?.running -= 1
        owners[server]?.lastEnd = now
    }

    /// Seconds for which libcurl keeps an idle connection (CURLOPT_MAXAGE_CONN(3)).
    static let idleSeconds = 118
    /// Time after an owner's last request in which libcurl may still have its connections.
    static let idleTime = Duration.seconds(idleSeconds + 2)
    /// Maximum number of servers with an owner.
    static let limit = 1024
}

extension TransferConfiguration {
    /// Returns the server or proxy to which libcurl connects for a URL, equal for all requests that may share a connection.
    func connectionKey(for url: TransferURL) -> String {
        // For https, a connection to the proxy is a tunnel to one server.
        if url.scheme != "https", let proxy = proxy(for: url), !proxy.isEmpty { return proxy }
        // libcurl may treat a name with a final dot like the same name without it.
        let host = url.host.hasSuffix(".") ? String(url.host.dropLast()) : url.host
        return "\(host):\(url.port)"
    }
}

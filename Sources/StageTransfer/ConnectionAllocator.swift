/// Allocates connections, up to a limit for each host and one in total, by priority and then in order of arrival.
///
/// A host that refuses requests while others are in progress gets fewer: many servers limit the connections of a client, and refuse
/// more with 429 or 503. The limit rises again with the responses that follow, and is forgotten with the host's last transfer.
struct ConnectionAllocator {
    private struct Waiter {
        var tag: Int
        var host: String
        var user: UInt32?
        var priority: Int
    }

    /// Lookups that were left behind: a user with too many of them gets no connection until some have ended.
    var lookups = AbandonedLookups()

    private let perHost: Int
    private let total: Int
    private var used: [String: Int] = [:]
    /// Limits of hosts that have refused requests, and the number of other responses since.
    private var lowered: [String: (limit: Int, responses: Int)] = [:]
    private var usedInAll = 0
    private var waiters: [Waiter] = []

    init(perHost: Int, total: Int) {
        self.perHost = max(perHost, 1)
        self.total = max(total, 1)
    }

    /// Takes a connection for a user's transfer, or queues the transfer and returns `false`; `nil` is the process's own user.
    mutating func acquire(_ tag: Int, host: String, user: UInt32? = nil, priority: Int) -> Bool {
        if hasRoom(for: host, of: user) {
            take(host)
            return true
        }
        let place = waiters.lastIndex { $0.priority >= priority }.map { $0 + 1 } ?? 0
        let waiter = Waiter(tag: tag, host: host, user: user, priority: priority)
        waiters.insert(waiter, at: place)
        return false
    }

    /// Releases a connection, and returns the queued transfers that now have one.
    mutating func release(host: String) -> [Int] {
        used[host, default: 1] -= 1
        if used[host] == 0 { used[host] = nil }
        usedInAll -= 1
        let tags = takeForWaiters()
        if used[host] == nil { lowered[host] = nil }
        return tags
    }

    /// Forgets the lookups that have ended, and returns the queued transfers that now have a connection.
    mutating func endLookups(at now: ContinuousClock.Instant) -> [Int] {
        lookups.removeEnded(at: now) ? takeForWaiters() : []
    }

    /// Adjusts the limit of a host to the status of a response, before its connection is released; `nil` if there was none.
    mutating func adjust(to status: Int?, of host: String) {
        let others = used[host, default: 1] - 1
        switch status {
        case nil: break
        case 429, 503:
            // A refusal of the only request has another reason.
            if others > 0 { lowered[host] = (min(others, limit(of: host)), 0) }
        default:
            guard var entry = lowered[host] else { return }
            entry.responses += 1
            if entry.responses == Self.responsesBeforeRise { entry = (entry.limit + 1, 0) }
            lowered[host] = entry.limit < perHost ? entry : nil
        }
    }

    /// Removes a transfer from the queue, and returns whether it was queued.
    mutating func cancel(_ tag: Int) -> Bool {
        guard let place = waiters.firstIndex(where: { $0.tag == tag }) else { return false }
        waiters.remove(at: place)
        return true
    }

    private func hasRoom(for host: String, of user: UInt32?) -> Bool {
        usedInAll < total && used[host, default: 0] < limit(of: host) && lookups.hasRoom(for: user)
    }

    private func limit(of host: String) -> Int { lowered[host]?.limit ?? perHost }

    private mutating func takeForWaiters() -> [Int] {
        var tags: [Int] = []
        while let place = waiters.firstIndex(where: { hasRoom(for: $0.host, of: $0.user) }) {
            let waiter = waiters.remove(at: place)
            take(waiter.host)
            tags.append(waiter.tag)
        }
        return tags
    }

    private mutating func take(_ host: String) {
        used[host, default: 0] += 1
        usedInAll += 1
    }

    /// Number of responses after which a host that refused requests gets another connection.
    private static let responsesBeforeRise = 8
}

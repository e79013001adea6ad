/// Allocates connections, up to a limit for each host and one in total, by priority and then in order of arrival.
///
/// A host that refuses requests of a user while others of the same user are in progress gets fewer of these: many servers limit
/// the connections of a client, and refuse more with 429 or 503. The limit rises again with the responses that follow, and is
/// forgotten with the user's last transfer from the host. Users have limits of their own, so that no user delays the transfers of
/// others from the same host.
struct ConnectionAllocator {
    /// A user's transfers from a host, which have one limit together; the user `nil` is the process's own.
    private struct UserHost: Hashable {
        var host: String
        var user: UInt32?
    }

    private struct Waiter {
        var tag: Int
        var userHost: UserHost
        var mayLookUpName: Bool
        var priority: Int
    }

    /// Abandoned lookups: a user with too many of them gets no connection to a host name until some have ended.
    var lookups = AbandonedLookups()
    private let perHost: Int
    private let total: Int
    private var used: [String: Int] = [:]
    /// Connections of each user, by host.
    private var usedByUser: [UserHost: Int] = [:]
    /// Limits of hosts that have refused requests of a user, and the number of other responses since.
    private var lowered: [UserHost: (limit: Int, responses: Int)] = [:]
    private var usedInAll = 0
    private var waiters: [Waiter] = []

    init(perHost: Int, total: Int) {
        self.perHost = max(perHost, 1)
        self.total = max(total, 1)
    }

    /// Takes a connection for a user's transfer, or queues the transfer and returns `false`.
    ///
    /// Without `mayLookUpName`, the transfer does not wait for abandoned lookups.
    mutating func acquire(
        _ tag: Int,
        host: String,
        user: UInt32? = nil,
        mayLookUpName: Bool = true,
        priority: Int
    ) -> Bool {
        let waiter = Waiter(
            tag: tag,
            userHost: UserHost(host: host, user: user),
            mayLookUpName: mayLookUpName,
            priority: priority
        )
        if hasRoom(for: waiter) {
            take(waiter.userHost)
            return true
        }
        let index = waiters.lastIndex { $0.priority >= priority }.map { $0 + 1 } ?? 0
        waiters.insert(waiter, at: index)
        return false
    }

    /// Releases a user's connection, and returns the queued transfers that now have one.
    mutating func release(host: String, user: UInt32? = nil) -> [Int] {
        let userHost = UserHost(host: host, user: user)
        used[host, default: 1] -= 1
        if used[host] == 0 { used[host] = nil }
        usedByUser[userHost, default: 1] -= 1
        if usedByUser[userHost] == 0 { usedByUser[userHost] = nil }
        usedInAll -= 1
        let tags = takeForWaiters()
        if usedByUser[userHost] == nil { lowered[userHost] = nil }
        return tags
    }

    /// Forgets the lookups that have ended, and returns the queued transfers that now have a connection.
    mutating func endLookups(at now: SuspendingClock.Instant) -> [Int] {
        lookups.removeEnded(at: now) ? takeForWaiters() : []
    }

    /// Adjusts a user's limit of a host to the status of a response, before its connection is released; `nil` if there was none.
    mutating func adjust(to status: Int?, of host: String, user: UInt32? = nil) {
        let userHost = UserHost(host: host, user: user)
        let others = usedByUser[userHost, default: 1] - 1
        switch status {
        case nil: break
        case 429, 503:
            // A refusal of the only request has another reason.
            if others > 0 { lowered[userHost] = (min(others, limit(of: userHost)), 0) }
        default:
            guard var entry = lowered[userHost] else { return }
            entry.responses += 1
            if entry.responses == Self.responsesBeforeRise { entry = (entry.limit + 1, 0) }
            lowered[userHost] = entry.limit < perHost ? entry : nil
        }
    }

    /// Removes a transfer from the queue, and returns whether it was queued.
    mutating func cancel(_ tag: Int) -> Bool {
        guard let index = waiters.firstIndex(where: { $0.tag == tag }) else { return false }
        waiters.remove(at: index)
        return true
    }

    /// Returns the queued transfers that wait because of abandoned lookups.
    func waitersForLookups() -> [Int] {
        waiters.filter { $0.mayLookUpName && !lookups.hasRoom(for: $0.userHost.user) }.map(\.tag)
    }

    private func hasRoom(for waiter: Waiter) -> Bool {
        let userHost = waiter.userHost
        return usedInAll < total && used[userHost.host, default: 0] < perHost
            && usedByUser[userHost, default: 0] < limit(of: userHost)
            && (!waiter.mayLookUpName || lookups.hasRoom(for: userHost.user))
    }

    private func limit(of userHost: UserHost) -> Int { lowered[userHost]?.limit ?? perHost }

    private mutating func takeForWaiters() -> [Int] {
        var tags: [Int] = []
        while let index = waiters.firstIndex(where: { hasRoom(for: $0) }) {
            let waiter = waiters.remove(at: index)
            take(waiter.userHost)
            tags.append(waiter.tag)
        }
        return tags
    }

    private mutating func take(_ userHost: UserHost) {
        used[userHost.host, default: 0] += 1
        usedByUser[userHost, default: 0] += 1
        usedInAll += 1
    }

    /// Number of responses after which a host that refused requests gets another connection.
    private static let responsesBeforeRise = 8
}

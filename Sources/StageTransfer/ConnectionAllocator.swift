/// Allocates connections, up to a limit for each host and one in total, by priority and then in order of arrival.
struct ConnectionAllocator {
    private struct Waiter {
        var tag: Int
        var host: String
        var priority: Int
    }

    private let perHost: Int
    private let total: Int
    private var used: [String: Int] = [:]
    private var usedInAll = 0
    private var waiters: [Waiter] = []

    init(perHost: Int, total: Int) {
        self.perHost = max(perHost, 1)
        self.total = max(total, 1)
    }

    /// Takes a connection for a transfer, or queues the transfer and returns `false`.
    mutating func acquire(_ tag: Int, host: String, priority: Int) -> Bool {
        if hasRoom(for: host) {
            take(host)
            return true
        }
        let place = waiters.lastIndex { $0.priority >= priority }.map { $0 + 1 } ?? 0
        waiters.insert(Waiter(tag: tag, host: host, priority: priority), at: place)
        return false
    }

    /// Releases a connection, and returns the queued transfer that now has it, if any.
    mutating func release(host: String) -> Int? {
        used[host, default: 1] -= 1
        if used[host] == 0 { used[host] = nil }
        usedInAll -= 1
        guard let place = waiters.firstIndex(where: { hasRoom(for: $0.host) }) else { return nil }
        let waiter = waiters.remove(at: place)
        take(waiter.host)
        return waiter.tag
    }

    /// Removes a transfer from the queue, and returns whether it was queued.
    mutating func cancel(_ tag: Int) -> Bool {
        guard let place = waiters.firstIndex(where: { $0.tag == tag }) else { return false }
        waiters.remove(at: place)
        return true
    }

    private func hasRoom(for host: String) -> Bool {
        usedInAll < total && used[host, default: 0] < perHost
    }

    private mutating func take(_ host: String) {
        used[host, default: 0] += 1
        usedInAll += 1
    }
}

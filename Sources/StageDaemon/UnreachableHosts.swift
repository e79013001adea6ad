/// Tasks in backoff because their hosts could not be reached.
///
/// Each user has hosts of their own, because the transfers of one user must not repeat those of others.
struct UnreachableHosts {
    private struct UserHost: Hashable {
        var user: UInt32
        var host: String
    }

    private var tasks: [UserHost: Set<Int64>] = [:]
    private var hosts: [Int64: UserHost] = [:]

    /// Adds a user's task that could not reach a host.
    mutating func add(_ id: Int64, waitingFor host: String, of user: UInt32) {
        remove(id)
        let key = UserHost(user: user, host: host)
        tasks[key, default: []].insert(id)
        hosts[id] = key
    }

    /// Removes a task that has ended or reached its host.
    mutating func remove(_ id: Int64) {
        guard let key = hosts.removeValue(forKey: id) else { return }
        tasks[key]?.remove(id)
        if tasks[key]?.isEmpty ?? false { tasks[key] = nil }
    }

    /// Removes and returns a user's tasks that wait for a host.
    mutating func removeAll(of host: String, user: UInt32) -> Set<Int64> {
        let waiting = tasks.removeValue(forKey: UserHost(user: user, host: host)) ?? []
        for id in waiting { hosts[id] = nil }
        return waiting
    }

    /// Removes and returns all tasks.
    mutating func removeAll() -> [Int64] {
        defer { self = UnreachableHosts() }
        return Array(hosts.keys)
    }
}

/// Tasks in backoff because their hosts could not be reached.
struct UnreachableHosts {
    private var tasks: [String: Set<Int64>] = [:]
    private var hosts: [Int64: String] = [:]

    /// Adds a task that could not reach a host.
    mutating func add(_ id: Int64, waitingFor host: String) {
        remove(id)
        tasks[host, default: []].insert(id)
        hosts[id] = host
    }

    /// Removes a task that has ended or reached its host.
    mutating func remove(_ id: Int64) {
        guard let host = hosts.removeValue(forKey: id) else { return }
        tasks[host]?.remove(id)
        if tasks[host]?.isEmpty ?? false { tasks[host] = nil }
    }

    /// Removes and returns the tasks that wait for a host.
    mutating func removeAll(of host: String) -> Set<Int64> {
        let waiting = tasks.removeValue(forKey: host) ?? []
        for id in waiting { hosts[id] = nil }
        return waiting
    }

    /// Removes and returns all tasks.
    mutating func removeAll() -> [Int64] {
        defer { self = UnreachableHosts() }
        return Array(hosts.keys)
    }
}

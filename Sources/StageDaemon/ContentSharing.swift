import DequeModule

/// Decides which task fetches content that several tasks of one user want: the leader, for which the followers wait.
struct ContentSharing {
    private struct Group {
        var leader: Int64
        /// In order of arrival; those that have left stay here until they are met.
        var followers: Deque<Int64> = []
    }

    private var groups: [String: Group] = [:]
    private var keys: [Int64: String] = [:]

    /// The leaders of all contents.
    var leaders: [Int64] { groups.values.map(\.leader) }

    /// The task that fetches the content with a key.
    func leader(for key: String) -> Int64? { groups[key]?.leader }

    /// The task that fetches the content of another one, or of itself; `nil` if that content is not shared.
    func leader(of id: Int64) -> Int64? { keys[id].flatMap { groups[$0]?.leader } }

    /// The tasks that wait for the content that a task fetches.
    func followers(of id: Int64) -> [Int64] {
        guard let key = keys[id], let group = groups[key], group.leader == id else { return [] }
        return group.followers.filter { isFollower($0, of: key) }
    }

    /// Adds a task as the follower of the one that fetches its content, or as the leader where there is none.
    ///
    /// - Returns: Whether it is a follower.
    mutating func join(_ id: Int64, for key: String) -> Bool {
        if groups[key]?.leader == id || isFollower(id, of: key) { return groups[key]?.leader != id }
        keys[id] = key
        guard groups[key] == nil else {
            groups[key]?.followers.append(id)
            return true
        }
        groups[key] = Group(leader: id)
        return false
    }

    /// Removes a task; returns the follower that takes its place, if it was the leader and has one.
    mutating func leave(_ id: Int64) -> Int64? {
        guard let key = keys.removeValue(forKey: id), groups[key]?.leader == id else { return nil }
        while let next = groups[key]?.followers.popFirst() {
            guard keys[next] == key else { continue }
            groups[key]?.leader = next
            return next
        }
        groups[key] = nil
        return nil
    }

    /// Makes a follower the leader, and the leader the last follower.
    mutating func handOver(from leader: Int64, to follower: Int64) {
        guard let key = keys[leader], groups[key]?.leader == leader, isFollower(follower, of: key)
        else { return }
        groups[key]?.followers.removeAll { $0 == follower }
        groups[key]?.followers.append(leader)
        groups[key]?.leader = follower
    }

    /// Makes a task the leader in the place of one that ends, which leaves.
    mutating func replaceLeader(for key: String, by id: Int64) {
        guard let old = groups[key]?.leader, old != id else { return }
        keys[old] = nil
        keys[id] = key
        groups[key]?.leader = id
    }

    private func isFollower(_ id: Int64, of key: String) -> Bool {
        keys[id] == key && groups[key]?.leader != id
    }
}

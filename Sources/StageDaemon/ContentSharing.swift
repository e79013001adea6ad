import DequeModule

/// Decides which task downloads content that several tasks of a user request: the leader downloads, the followers
/// wait for it.
struct ContentSharing {
    private struct Group {
        var leader: Int64
        /// Followers in order of arrival; removed ones are skipped when they reach the front.
        var followers: Deque<Int64> = []
    }

    private var groups: [String: Group] = [:]
    private var keys: [Int64: String] = [:]

    /// The leaders of all groups.
    var leaders: [Int64] { groups.values.map(\.leader) }

    /// Returns the task that downloads the content with a key.
    func leader(for key: String) -> Int64? { groups[key]?.leader }

    /// Returns the leader of a task's group, which may be the task itself; `nil` if its content is not shared.
    func leader(of id: Int64) -> Int64? { keys[id].flatMap { groups[$0]?.leader } }

    /// Returns the followers of a leader.
    func followers(of id: Int64) -> [Int64] {
        guard let key = keys[id], let group = groups[key], group.leader == id else { return [] }
        return group.followers.filter { isFollower($0, of: key) }
    }

    /// Adds a task to the group of its content, as the leader if the group is new.
    ///
    /// - Returns: `true` if the task is a follower.
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

    /// Removes a task; returns the follower that becomes the leader, if the task was the leader and has followers.
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

    /// Makes a task the leader in place of one that is ending, which leaves the group.
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

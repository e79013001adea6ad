import DequeModule

/// Decides which task downloads content that several tasks of a user request: the leader downloads, the followers
/// wait for it.
///
/// A follower that cannot run is set aside until ``reconsider(_:)`` or ``reconsiderFollowers(of:)`` names it, because a user may
/// have any number of them.
struct ContentSharing {
    private struct Group {
        var leader: Int64
        /// Followers that may be able to run, in order of arrival; removed ones are skipped when they reach the front.
        var candidates: Deque<Int64> = []
        /// Followers that could not run when they were considered, with removed ones and some of ``candidates``.
        var others: Deque<Int64> = []
    }

    private var groups: [String: Group] = [:]
    private var keys: [Int64: String] = [:]
    /// Followers that could not run when they were considered.
    private var considered: Set<Int64> = []
    /// Tasks with an entry in ``Group/others``.
    private var listed: Set<Int64> = []

    /// The leaders of all groups.
    var leaders: [Int64] { groups.values.map(\.leader) }

    /// Returns the task that downloads the content with a key.
    func leader(for key: String) -> Int64? { groups[key]?.leader }

    /// Returns the leader of a task's group, which may be the task itself; `nil` if its content is not shared.
    func leader(of id: Int64) -> Int64? { keys[id].flatMap { groups[$0]?.leader } }

    /// Returns the followers of a leader.
    func followers(of id: Int64) -> [Int64] {
        guard let key = keys[id], let group = groups[key], group.leader == id else { return [] }
        return group.candidates.filter { isCandidate($0, for: key) }
            + group.others.filter { considered.contains($0) && isFollower($0, of: key) }
    }

    /// Adds a task to the group of its content, as the leader if the group is new.
    ///
    /// - Returns: `true` if the task is a follower.
    mutating func join(_ id: Int64, for key: String) -> Bool {
        if groups[key]?.leader == id || isFollower(id, of: key) { return groups[key]?.leader != id }
        keys[id] = key
        guard groups[key] == nil else {
            groups[key]?.candidates.append(id)
            return true
        }
        groups[key] = Group(leader: id)
        return false
    }

    /// Removes a task; returns the follower that becomes the leader, if the task was the leader and has followers.
    mutating func leave(_ id: Int64) -> Int64? {
        considered.remove(id)
        guard let key = keys.removeValue(forKey: id), groups[key]?.leader == id else { return nil }
        guard let next = nextCandidate(for: key) ?? nextOther(for: key) else {
            groups[key] = nil
            return nil
        }
        groups[key]?.leader = next
        return next
    }

    /// Makes the first follower for which `canRun` returns `true` the leader, and the leader a follower that cannot run.
    ///
    /// - Returns: The new leader; `nil` if no follower can run.
    mutating func handOver(from leader: Int64, where canRun: (Int64) -> Bool) -> Int64? {
        guard let key = keys[leader], groups[key]?.leader == leader else { return nil }
        while let next = nextCandidate(for: key) {
            guard canRun(next) else {
                setAside(next, of: key)
                continue
            }
            setAside(leader, of: key)
            groups[key]?.leader = next
            return next
        }
        return nil
    }

    /// Lets a follower that could not run be considered again.
    mutating func reconsider(_ id: Int64) {
        guard considered.remove(id) != nil, let key = keys[id] else { return }
        groups[key]?.candidates.append(id)
    }

    /// Lets all followers of a leader that could not run be considered again.
    mutating func reconsiderFollowers(of leader: Int64) {
        guard let key = keys[leader], groups[key]?.leader == leader else { return }
        while let next = nextOther(for: key) { groups[key]?.candidates.append(next) }
    }

    /// Makes a task the leader in place of one that is ending, which leaves the group.
    mutating func replaceLeader(for key: String, by id: Int64) {
        guard let old = groups[key]?.leader, old != id else { return }
        keys[old] = nil
        keys[id] = key
        considered.remove(id)
        groups[key]?.leader = id
    }

    private func isFollower(_ id: Int64, of key: String) -> Bool {
        keys[id] == key && groups[key]?.leader != id
    }

    private func isCandidate(_ id: Int64, for key: String) -> Bool {
        !considered.contains(id) && isFollower(id, of: key)
    }

    private mutating func nextCandidate(for key: String) -> Int64? {
        while let next = groups[key]?.candidates.popFirst() {
            if isCandidate(next, for: key) { return next }
        }
        return nil
    }

    /// Removes and returns the next follower that could not run; the caller decides whether it becomes a candidate again.
    private mutating func nextOther(for key: String) -> Int64? {
        while let next = groups[key]?.others.popFirst() {
            listed.remove(next)
            if considered.remove(next) != nil { return next }
        }
        return nil
    }

    /// Moves a task to the followers that cannot run.
    private mutating func setAside(_ id: Int64, of key: String) {
        considered.insert(id)
        if listed.insert(id).inserted { groups[key]?.others.append(id) }
    }
}

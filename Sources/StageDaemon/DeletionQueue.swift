import DequeModule

/// Queue of the deletions of upload resources, which starts those of its users in rotation.
///
/// A server that does not respond occupies a deletion until its time limit. One user therefore has few running
/// deletions, so that those of other users can run, too.
struct DeletionQueue {
    /// Maximum number of running deletions, since each may use a connection that transfers wait for.
    static let limit = 8
    /// Maximum number of running deletions of one user.
    static let limitPerUser = 2
    /// Maximum number of queued deletions.
    static let capacity = 1024

    private var queued: [UInt32: Deque<ResourceDeletion>] = [:]
    /// Users with queued deletions; the first one is served next.
    private var rotation: Deque<UInt32> = []
    private var running: [UInt32: Int] = [:]
    private var queuedCount = 0
    private var runningCount = 0

    /// Queues a deletion; if the queue is full, drops the last one of the user with the most.
    mutating func append(_ deletion: ResourceDeletion) {
        let user = deletion.owner.user
        if queued[user] == nil { rotation.append(user) }
        queued[user, default: []].append(deletion)
        queuedCount += 1
        guard queuedCount > Self.capacity,
            let longest = queued.max(by: { $0.value.count < $1.value.count })?.key
        else { return }
        _ = queued[longest]?.popLast()
        noteRemoval(of: longest)
    }

    /// Removes and returns the next deletion that may run; `nil` if there is none.
    ///
    /// It runs until ``end(of:)`` is called with its user.
    mutating func next() -> ResourceDeletion? {
        guard runningCount < Self.limit,
            let index = rotation.firstIndex(where: { running[$0, default: 0] < Self.limitPerUser })
        else { return nil }
        let user = rotation.remove(at: index)
        rotation.append(user)
        guard let deletion = queued[user]?.popFirst() else { return nil }
        noteRemoval(of: user)
        running[user, default: 0] += 1
        runningCount += 1
        return deletion
    }

    /// Notes that a deletion of a user has ended.
    mutating func end(of user: UInt32) {
        guard let count = running[user] else { return }
        running[user] = count > 1 ? count - 1 : nil
        runningCount -= 1
    }

    /// Counts a deletion that was removed, and removes a user without others from the rotation.
    private mutating func noteRemoval(of user: UInt32) {
        queuedCount -= 1
        guard queued[user]?.isEmpty ?? true else { return }
        queued[user] = nil
        rotation.removeAll { $0 == user }
    }
}

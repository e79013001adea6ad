/// Histories of hosts, one for each user: a host that a user chooses affects no transfers of others.
///
/// A user without recorded faults has no history. At the limit, a further user's history replaces the one whose last change is
/// the oldest: that user's transfers then use mirrors in their usual order, and request ranges from all hosts again.
struct MirrorHistories {
    /// Histories by user; `nil` is the process's own user.
    private var histories: [UInt32?: MirrorHistory] = [:]
    private let sharesDelays: Bool
    private var time = Duration.zero

    /// Creates histories; without `sharesDelays`, each transfer waits only for delays that were requested of it.
    init(sharesDelays: Bool = true) { self.sharesDelays = sharesDelays }

    /// Sets the time since the engine's start.
    mutating func advance(to time: Duration) { self.time = time }

    /// History of a user at this time; `nil` is the process's own user.
    subscript(user: UInt32?) -> MirrorHistory {
        get {
            let limit = user == nil ? MirrorHistory.maximumCount : Self.maximumCountPerUser
            var history = histories[user] ?? MirrorHistory(sharesDelays: sharesDelays, limit: limit)
            history.advance(to: time)
            return history
        }
        set {
            guard !newValue.isEmpty else {
                histories[user] = nil
                return
            }
            if histories[user] == nil, histories.count >= Self.maximumUserCount,
                let first = histories.min(by: { $0.value.time < $1.value.time })
            {
                histories[first.key] = nil
            }
            histories[user] = newValue
        }
    }

    /// Maximum number of hosts for each kind of fault in the history of a daemon's user.
    static let maximumCountPerUser = 256
    /// Maximum number of users with a history.
    static let maximumUserCount = 64
}

import FoundationEssentials

/// Dates before which a user's transfers send no request to a host, since it responded to one of them with 429 or 503
/// and `Retry-After`.
///
/// Each user has separate dates, and a limit of their own, because a server that one user chooses must not affect the
/// transfers of others.
struct HostDelays {
    /// Dates by user and host; no user has an empty dictionary.
    private var ends: [UInt32: [String: Date]] = [:]
    /// Next date at which a delay ends, or an earlier date if that delay was extended or removed.
    private(set) var nextEnd: Date?

    /// Longest delay in seconds: the server may mean one resource only, so a few transfers try again after this time.
    static let longest = 600.0
    /// Maximum number of delays of one user; a further one replaces the one that ends first.
    static let maximumCountPerUser = 256

    /// Set if there are no delays.
    var isEmpty: Bool { ends.isEmpty }

    /// Adds the delay of a host, or extends it; returns the hosts whose delays have begun or ended.
    @discardableResult
    mutating func add(
        _ host: String,
        of user: UInt32,
        until end: Date,
        at now: Date
    ) -> Set<String> {
        let end = min(end, now + Self.longest)
        var own = ends[user] ?? [:]
        guard end > own[host] ?? now else { return [] }
        var changed: Set<String> = []
        if own[host] == nil {
            changed.insert(host)
            if own.count >= Self.maximumCountPerUser,
                let first = own.min(by: { $0.value < $1.value })
            {
                guard first.value < end else { return [] }
                own[first.key] = nil
                changed.insert(first.key)
            }
        }
        own[host] = end
        ends[user] = own
        nextEnd = min(nextEnd ?? end, end)
        return changed
    }

    /// Returns the date at which the delay of a host ends; `nil` if it has none.
    func end(of host: String, user: UInt32) -> Date? { ends[user]?[host] }

    /// Returns whether the transfers of a user's lane are delayed.
    func apply(to lane: UserQueue.Lane, of user: UInt32) -> Bool {
        !lane.ignoresHostDelays && end(of: lane.host, user: user) != nil
    }

    /// Ends the delay of a host; returns whether it had one.
    mutating func remove(_ host: String, of user: UInt32) -> Bool {
        guard ends[user]?.removeValue(forKey: host) != nil else { return false }
        if ends[user]?.isEmpty ?? false { ends[user] = nil }
        if ends.isEmpty { nextEnd = nil }
        return true
    }

    /// Removes the delays whose dates have passed, and returns them.
    @discardableResult
    mutating func removeEnded(at now: Date) -> HostDelays {
        var ended = HostDelays()
        guard let date = nextEnd, date <= now else { return ended }
        for (user, own) in ends {
            let over = own.filter { $0.value <= now }
            guard !over.isEmpty else { continue }
            ended.ends[user] = over
            ends[user] = over.count == own.count ? nil : own.filter { $0.value > now }
        }
        nextEnd = ends.values.compactMap { $0.values.min() }.min()
        return ended
    }

    /// Moves all dates by a change of the clock in seconds.
    mutating func clockChanged(by seconds: Double) {
        ends = ends.mapValues { own in own.mapValues { $0 + seconds } }
        nextEnd = nextEnd.map { $0 + seconds }
    }
}

import FoundationEssentials

/// Dates before which a user's transfers send no request to a host, since it responded to one of them with 429 or 503
/// and `Retry-After`.
///
/// Each user has separate dates, because a server that one user chooses must not delay the transfers of others.
struct HostDelays {
    private struct Key: Hashable {
        var host: String
        var user: UInt32
    }

    private var ends: [Key: Date] = [:]

    /// Longest delay in seconds: the server may mean one resource only, so a few transfers try again after this time.
    static let longest = 600.0
    /// Maximum number of delays; further ones are not recorded.
    static let maximumCount = 4096

    /// Next date at which a delay ends.
    var nextEnd: Date? { ends.values.min() }

    /// Adds the delay of a host, or extends it; returns whether the host had none.
    @discardableResult
    mutating func add(_ host: String, of user: UInt32, until end: Date, at now: Date) -> Bool {
        let key = Key(host: host, user: user)
        let end = min(end, now + Self.longest)
        guard end > ends[key] ?? now, ends.count < Self.maximumCount || ends[key] != nil else {
            return false
        }
        return ends.updateValue(end, forKey: key) == nil
    }

    /// Returns the date at which the delay of a host ends; `nil` if it has none.
    func end(of host: String, user: UInt32) -> Date? { ends[Key(host: host, user: user)] }

    /// Returns whether the transfers of a user's lane are delayed; those with mirrors may use another host.
    func apply(to lane: UserQueue.Lane, of user: UInt32) -> Bool {
        !lane.hasMirrors && end(of: lane.host, user: user) != nil
    }

    /// Ends the delay of a host; returns whether it had one.
    mutating func remove(_ host: String, of user: UInt32) -> Bool {
        ends.removeValue(forKey: Key(host: host, user: user)) != nil
    }

    /// Removes the delays whose dates have passed, and returns them.
    @discardableResult
    mutating func removeEnded(at now: Date) -> HostDelays {
        var ended = HostDelays()
        guard let nextEnd, nextEnd <= now else { return ended }
        ended.ends = ends.filter { $0.value <= now }
        ends = ends.filter { $0.value > now }
        return ended
    }

    /// Moves all dates by a change of the clock in seconds.
    mutating func clockChanged(by seconds: Double) { ends = ends.mapValues { $0 + seconds } }
}

import FoundationEssentials

/// Dates until which servers have asked a user's transfers to wait (`Retry-After` of a 429 or a 503).
///
/// Users have rests of their own, so that no user delays the transfers of others from a host that they share.
struct HostRests {
    private struct Key: Hashable {
        var host: String
        var user: UInt32
    }

    private var ends: [Key: Date] = [:]

    /// Longest rest in seconds: a server may mean one resource only, and is asked again by few transfers at a time.
    static let longest = 600.0
    /// Maximum number of rests; further ones are not recorded.
    static let mostRests = 4096

    /// Next date at which a rest ends.
    var nextEnd: Date? { ends.values.min() }

    /// Adds a rest of a host, or extends it; returns whether the host did not rest before.
    @discardableResult
    mutating func add(_ host: String, of user: UInt32, until end: Date, at now: Date) -> Bool {
        let key = Key(host: host, user: user)
        let end = min(end, now + Self.longest)
        guard end > ends[key] ?? now, ends.count < Self.mostRests || ends[key] != nil else {
            return false
        }
        return ends.updateValue(end, forKey: key) == nil
    }

    /// Returns the date at which the rest of a host ends; `nil` if it does not rest.
    func end(of host: String, user: UInt32) -> Date? { ends[Key(host: host, user: user)] }

    /// Returns whether the host of a user's lane rests; transfers with mirrors may use another one.
    func apply(to lane: UserQueue.Lane, of user: UInt32) -> Bool {
        !lane.hasMirrors && end(of: lane.host, user: user) != nil
    }

    /// Ends the rest of a host; returns whether it did rest.
    mutating func remove(_ host: String, of user: UInt32) -> Bool {
        ends.removeValue(forKey: Key(host: host, user: user)) != nil
    }

    /// Ends the rests whose dates have passed, and returns them.
    @discardableResult
    mutating func removeEnded(at now: Date) -> HostRests {
        var ended = HostRests()
        guard let nextEnd, nextEnd <= now else { return ended }
        ended.ends = ends.filter { $0.value <= now }
        ends = ends.filter { $0.value > now }
        return ended
    }

    /// Moves all dates by a change of the clock in seconds.
    mutating func clockChanged(by seconds: Double) { ends = ends.mapValues { $0 + seconds } }
}

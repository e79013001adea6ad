/// Name lookups that continue after their exchanges have ended.
///
/// The system's resolver cannot be cancelled. At the end of an exchange, libcurl either waits for the lookup, which blocks the
/// engine's thread, or abandons the thread of the lookup. An abandoned thread ends with its lookup: after 10 seconds for each name
/// server by default. So the number of these threads is limited, for each user and in all. At the limit, only that user's requests
/// to host names wait.
struct AbandonedLookups {
    private var times: [UInt32?: [SuspendingClock.Instant]] = [:]

    /// Records an abandoned lookup.
    mutating func add(of user: UInt32?, at now: SuspendingClock.Instant) {
        times[user, default: []].append(now)
    }

    /// Forgets lookups that have ended, and returns whether there were any.
    mutating func removeEnded(at now: SuspendingClock.Instant) -> Bool {
        let before = count
        times = times.mapValues { $0.filter { now - $0 < Self.longestLookup } }
            .filter { !$0.value.isEmpty }
        return count < before
    }

    /// Returns whether another lookup of a user may be abandoned.
    func hasRoom(for user: UInt32?) -> Bool {
        (times[user]?.count ?? 0) < Self.limitPerUser && count < Self.limit
    }

    private var count: Int { times.values.reduce(0) { $0 + $1.count } }

    /// Maximum number of a user's abandoned lookups at a time.
    static let limitPerUser = 64
    /// Maximum number of all such lookups.
    static let limit = 256
    /// Time after which a lookup counts as ended: by default, three name servers that do not respond take 30 seconds.
    static let longestLookup = Duration.seconds(40)
}

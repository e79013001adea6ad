/// Name lookups that went on after their exchanges had ended.
///
/// The system's resolver cannot be cancelled. libcurl either waits for it, and with it the engine's thread, or leaves its thread
/// behind, which ends with the lookup: after 10 seconds for each name server by default. So the number of these threads is limited.
struct AbandonedLookups {
    private var times: [ContinuousClock.Instant] = []

    /// Records a lookup that is left behind.
    mutating func add(at now: ContinuousClock.Instant) { times.append(now) }

    /// Returns whether another lookup may be left behind.
    mutating func hasRoom(at now: ContinuousClock.Instant) -> Bool {
        times.removeAll { now - $0 >= Self.longestLookup }
        return times.count < Self.limit
    }

    /// Maximum number of lookups that are left behind at a time.
    static let limit = 64
    /// Time after which a lookup counts as ended.
    static let longestLookup = Duration.seconds(120)
}

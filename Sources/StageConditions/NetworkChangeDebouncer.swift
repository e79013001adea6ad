/// Debouncer that decides when a change of the network is reported.
///
/// A network comes up in steps: link, addresses, routes, name servers. So a report is due once the network has not changed
/// for ``delay``. While changes continue, the interval between reports doubles, so that a machine on which containers start
/// all the time does not keep trying unreachable hosts.
///
/// Does no I/O: time is an argument, relative to any fixed point.
struct NetworkChangeDebouncer {
    /// Time without a change after which a report is due.
    let delay: Duration

    /// Times of the first and the last change that are not reported yet.
    private var changes: (first: Duration, last: Duration)?
    private var latestReport: Duration?
    private var interval = Self.shortestInterval

    init(delay: Duration) { self.delay = delay }

    /// Next time at which a report is due; `nil` if there is no change to report.
    var deadline: Duration? {
        guard let changes else { return nil }
        // Continuous changes delay a report by six times the delay at most.
        let end = min(changes.last + delay, changes.first + delay * 6)
        guard let latestReport else { return end }
        return max(end, latestReport + interval)
    }

    /// Adds a change.
    mutating func add(at now: Duration) {
        changes = (first: changes?.first ?? now, last: now)
    }

    /// Returns whether a report is due; the changes up to now then count as reported.
    mutating func takeReport(at now: Duration) -> Bool {
        guard let deadline, deadline <= now else { return false }
        if let latestReport, now - latestReport < Self.quietTime {
            interval = min(interval * 2, Self.longestInterval)
        } else {
            interval = Self.shortestInterval
        }
        latestReport = now
        changes = nil
        return true
    }

    /// Minimum time between two reports, which doubles up to ``longestInterval`` while changes continue.
    static let shortestInterval = Duration.seconds(10)
    static let longestInterval = Duration.seconds(300)
    /// Time without a report after which the interval is the shortest again.
    static let quietTime = Duration.seconds(600)
}

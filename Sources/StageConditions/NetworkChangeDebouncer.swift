/// Debouncer that decides when a change of the network is reported.
///
/// A network returns in steps: its link, then addresses and routes, at last the name servers. A report is due once no
/// change has come for a while. The pauses between reports double while changes continue, so that a machine on which
/// containers start all the time does not try unreachable hosts all the time.
///
/// Does no I/O: time is an argument, relative to any fixed point.
struct NetworkChangeDebouncer {
    /// Time without a change after which a report is due.
    let delay: Duration

    /// Times of the first and the last change that are not reported yet.
    private var changes: (first: Duration, last: Duration)?
    private var latestReport: Duration?
    private var pause = Self.shortestPause

    init(delay: Duration) { self.delay = delay }

    /// Next time at which a report is due; `nil` if there is no change to report.
    var deadline: Duration? {
        guard let changes else { return nil }
        // Changes that do not cease delay a report only so long.
        let end = min(changes.last + delay, changes.first + delay * 6)
        guard let latestReport else { return end }
        return max(end, latestReport + pause)
    }

    /// Adds a change.
    mutating func add(at now: Duration) {
        changes = (first: changes?.first ?? now, last: now)
    }

    /// Returns whether a report is due; the changes up to now then count as reported.
    mutating func takeReport(at now: Duration) -> Bool {
        guard let deadline, deadline <= now else { return false }
        if let latestReport, now - latestReport < Self.quietTime {
            pause = min(pause * 2, Self.longestPause)
        } else {
            pause = Self.shortestPause
        }
        latestReport = now
        changes = nil
        return true
    }

    /// Least time between two reports at first, and while changes continue.
    static let shortestPause = Duration.seconds(10)
    static let longestPause = Duration.seconds(300)
    /// Time without a report after which the pauses are short again.
    static let quietTime = Duration.seconds(600)
}

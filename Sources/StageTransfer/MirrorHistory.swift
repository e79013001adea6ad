/// Failures of hosts that a user's transfers observed, which order the mirrors of later transfers.
struct MirrorHistory: Equatable, Sendable {
    /// Hosts that failed, and when that was found last.
    private var failed: [String: Duration] = [:]
    /// Hosts that answer range requests incorrectly, and when that was found.
    private var rangeUnsafe: [String: Duration] = [:]
    /// Times before which no request is sent to hosts, since these have requested a delay (`Retry-After`).
    private var delays: [String: Duration] = [:]
    private let sharesDelays: Bool
    /// Maximum number of hosts that failed, and of those with incorrect responses to range requests.
    private let limit: Int
    /// Time since the engine's start of the last call of ``advance(to:)``.
    private(set) var time = Duration.zero

    /// Creates an empty history, of at most `limit` hosts for each kind of fault.
    ///
    /// Without `sharesDelays`, each transfer waits only for delays that were requested of it.
    init(sharesDelays: Bool = true, limit: Int = Self.maximumCount) {
        self.sharesDelays = sharesDelays
        self.limit = limit
    }

    /// Set if nothing is recorded.
    var isEmpty: Bool { failed.isEmpty && rangeUnsafe.isEmpty && delays.isEmpty }

    /// Sets the time since the engine's start, and forgets faults of ranges that are older than an hour: a daemon runs for
    /// months, and most of these faults concern single files or a proxy.
    mutating func advance(to time: Duration) {
        self.time = time
        rangeUnsafe = rangeUnsafe.filter { time - $0.value < Self.rangeMemory }
        delays = delays.filter { time < $0.value }
    }

    /// Records a failure of a host: later transfers try it after the others.
    mutating func recordFailure(of host: String) {
        Self.record(host, at: time, in: &failed, limit: limit)
    }

    /// Records that a host delivered content.
    mutating func recordSuccess(of host: String) { failed[host] = nil }

    /// Records that a host answers range requests incorrectly: for an hour it receives no more of them.
    mutating func recordUnsafeRanges(of host: String) {
        Self.record(host, at: time, in: &rangeUnsafe, limit: limit)
    }

    /// Returns whether range requests may be sent to a host.
    func allowsRanges(from host: String) -> Bool { rangeUnsafe[host] == nil }

    /// Records that a host has refused a request and requests a delay.
    mutating func recordDelay(of host: String, lasting pause: Duration) {
        guard sharesDelays else { return }
        delays[host] = max(delays[host] ?? .zero, time + min(pause, Self.longestDelay))
    }

    /// Returns the remaining delay that a host has requested; zero if there is none.
    func remainingDelay(of host: String) -> Duration {
        max((delays[host] ?? .zero) - time, .zero)
    }

    /// Returns the indices of `hosts` in the order to try them: those that failed come last.
    func order(_ hosts: [String]) -> [Int] {
        hosts.indices.filter { failed[hosts[$0]] == nil }
            + hosts.indices.filter { failed[hosts[$0]] != nil }
    }

    /// Records a host; at the limit it replaces the one that was recorded first, since users choose the hosts of a daemon.
    private static func record(
        _ host: String,
        at time: Duration,
        in hosts: inout [String: Duration],
        limit: Int
    ) {
        if hosts[host] == nil, hosts.count >= limit {
            let first = hosts.min { $0.value < $1.value }
            if let first { hosts[first.key] = nil }
        }
        hosts[host] = time
    }

    /// Maximum number of hosts for each kind of fault in a process that serves one user.
    static let maximumCount = 1024

    private static let rangeMemory = Duration.seconds(3600)
    /// Longest delay that holds for other transfers than the refused one: a server may mean one resource only.
    private static let longestDelay = Duration.seconds(600)
}

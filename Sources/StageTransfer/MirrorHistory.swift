/// Failures of hosts that an engine's transfers observed, which order the mirrors of later transfers.
struct MirrorHistory: Equatable, Sendable {
    private var failed: Set<String> = []
    private var rangeUnsafe: Set<String> = []

    /// Records a failure of a host: later transfers try it after the others.
    mutating func recordFailure(of host: String) { failed.insert(host) }

    /// Records that a host delivered content.
    mutating func recordSuccess(of host: String) { failed.remove(host) }

    /// Records that a host answers range requests incorrectly: it receives no more of them.
    mutating func recordUnsafeRanges(of host: String) { rangeUnsafe.insert(host) }

    /// Returns whether range requests may be sent to a host.
    func allowsRanges(from host: String) -> Bool { !rangeUnsafe.contains(host) }

    /// Returns the indices of `hosts` in the order to try them: those that failed come last.
    func order(_ hosts: [String]) -> [Int] {
        hosts.indices.filter { !failed.contains(hosts[$0]) }
            + hosts.indices.filter { failed.contains(hosts[$0]) }
    }
}

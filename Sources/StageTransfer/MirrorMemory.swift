/// What the transfers of an engine learn about hosts, for those that follow.
struct MirrorMemory: Equatable, Sendable {
    private var failed: Set<String> = []
    private var rangeUnsafe: Set<String> = []

    /// Remembers that a host failed: it is tried after those that did not.
    mutating func recordFailure(of host: String) { failed.insert(host) }

    /// Remembers that a host delivered.
    mutating func recordSuccess(of host: String) { failed.remove(host) }

    /// Remembers that a host answers requests for ranges wrongly: it gets no more of them.
    mutating func recordUnsafeRanges(of host: String) { rangeUnsafe.insert(host) }

    /// Whether a host may be asked for a range.
    func allowsRanges(from host: String) -> Bool { !rangeUnsafe.contains(host) }

    /// The positions of `hosts` in the order to try them in: those that failed before last.
    func order(_ hosts: [String]) -> [Int] {
        hosts.indices.filter { !failed.contains(hosts[$0]) }
            + hosts.indices.filter { failed.contains(hosts[$0]) }
    }
}

import FoundationEssentials
import StageControl

extension Scheduler {
    /// Limits of concurrent transfers.
    struct Limits: Equatable, Sendable {
        var total = 16
        var perHost = 6
        /// Maximum number of concurrent workers.
        var workers = 16
        /// Maximum number of concurrent workers of one user.
        var workersPerUser = 2
        /// Seconds after which a transfer yields to a user without any, if all other users have equally many.
        var slice = 300.0
    }

    /// Reasons that block a transfer until a request or the end of another task removes them, and not a date.
    struct Blocks: OptionSet, Sendable {
        let rawValue: UInt8
        static let client = Blocks(rawValue: 1 << 0)
        static let user = Blocks(rawValue: 1 << 1)
        static let authentication = Blocks(rawValue: 1 << 2)
        /// Another task downloads the same content.
        static let leader = Blocks(rawValue: 1 << 3)
        /// The attempts of a staging that this one replaces have not ended.
        static let predecessor = Blocks(rawValue: 1 << 4)
        /// Blocks that are determined at each start of the daemon, and so are not recorded.
        static let unrecorded: Blocks = [.leader, .predecessor]
    }

    /// A host, for the transfers of one session.
    struct SessionHost: Hashable {
        var session: Int64
        var host: String
    }

    /// Transfers to start and to stop.
    struct Decision: Equatable, Sendable {
        var start: [Int64] = []
        var stop: [Int64] = []
        /// Transfers that wait for other reasons than before, since a delay has begun or ended.
        var wait: [Int64] = []
    }
}

extension Scheduler {
    /// Returns the reasons why a transfer does not run, the most lasting first; empty if it is running.
    func pendingReasons(of id: Int64, at now: Date) -> [PendingReason] {
        guard let item = items[id], item.phase != .running else { return [] }
        var reasons: [PendingReason] = []
        if item.blocks.contains(.client) { reasons.append(PendingReason(.pausedByClient)) }
        if item.blocks.contains(.user) { reasons.append(PendingReason(.pausedByUser)) }
        if item.blocks.contains(.authentication) { reasons.append(PendingReason(.authentication)) }
        reasons += item.constraints.unmet(in: conditions).map { PendingReason($0) }
        if let fullUntil, item.isConnected {
            reasons.append(PendingReason(.disk, until: fullUntil))
        }
        if let reason = item.notBefore, reason.until.map({ $0 > now }) ?? false {
            reasons.append(reason)
        }
        if let delay = hostDelayReason(of: item), !reasons.contains(where: { $0.kind == .server }) {
            reasons.append(delay)
        }
        if reasons.isEmpty { reasons.append(PendingReason(.slot, resource: resource(for: item))) }
        return reasons
    }

    /// Returns the shared resource that a transfer waits for because others use it; `nil` if it is about to start.
    func resource(for item: Item) -> PendingReason.Resource? {
        if item.blocks.contains(.leader) { return .content }
        if item.host == Self.workerHost || item.blocks.contains(.predecessor) { return .workers }
        if item.host == Self.clientHost { return nil }
        let key = SessionHost(session: item.session, host: item.host)
        if sessionHosts[key, default: 0] >= item.sessionLimit { return .sessionConnections }
        if hosts[item.host, default: 0] >= limits.perHost { return .hostConnections }
        return connectionCount < limits.total ? nil : .connections
    }

    /// Delays a user's transfers from a host until a date, as the host has requested.
    mutating func addHostDelay(of host: String, user: UInt32, until end: Date, at now: Date) {
        let changed = hostDelays.add(host, of: user, until: end, at: now)
        if !changed.isEmpty { changedHosts[user, default: []].formUnion(changed) }
    }

    /// Ends the delay of a user's transfers from a host.
    mutating func endHostDelay(of host: String, user: UInt32) {
        if hostDelays.remove(host, of: user) { changedHosts[user, default: []].insert(host) }
    }

    /// Records that the delays of transfers have changed, because those of their hosts have begun or ended since the last decision.
    mutating func noteChangedDelays(andThoseOf ended: HostDelays) {
        guard !ended.isEmpty || !changedHosts.isEmpty else { return }
        for (id, item) in items where item.isConnected && !item.ignoresHostDelays {
            let hasChanged = changedHosts[item.user]?.contains(item.host) ?? false
            if hasChanged || ended.end(of: item.host, user: item.user) != nil {
                changedDelays.insert(id)
            }
        }
        changedHosts = [:]
    }

    /// Returns the reason to wait of a transfer whose host has requested a delay; `nil` if it has not.
    func hostDelayReason(of item: Item) -> PendingReason? {
        guard !item.ignoresHostDelays, item.isConnected else { return nil }
        let end = hostDelays.end(of: item.host, user: item.user)
        return end.map { PendingReason(.server, until: $0) }
    }
}

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

    /// Reasons that block a transfer until an explicit action removes them.
    struct Blocks: OptionSet, Sendable {
        let rawValue: UInt8
        static let client = Blocks(rawValue: 1 << 0)
        static let user = Blocks(rawValue: 1 << 1)
        static let authentication = Blocks(rawValue: 1 << 2)
        /// Another task downloads the same content.
        static let leader = Blocks(rawValue: 1 << 3)
        /// The attempts of a staging that this one replaces have not ended.
        static let predecessor = Blocks(rawValue: 1 << 4)
        /// Blocks that are decided anew at each start of the daemon, and so are not recorded.
        static let unrecorded: Blocks = [.leader, .predecessor]
    }

    /// A host, for the transfers of one session.
    struct SessionHost: Hashable {
        var session: Int64
        var host: String
    }

    /// Transfers to start and to stop.
    struct Turn: Equatable, Sendable {
        var start: [Int64] = []
        var stop: [Int64] = []
    }
}

extension Scheduler {
    /// Returns the resource that other transfers use, so that a transfer waits; `nil` if it is about to start.
    func resource(for item: Item) -> PendingReason.Resource? {
        if item.blocks.contains(.leader) { return .content }
        if item.host == Self.workerHost || item.blocks.contains(.predecessor) { return .workers }
        if item.host == Self.clientHost { return nil }
        let key = SessionHost(session: item.session, host: item.host)
        if sessionHosts[key, default: 0] >= item.sessionLimit { return .sessionConnections }
        if hosts[item.host, default: 0] >= limits.perHost { return .hostConnections }
        return connectionCount < limits.total ? nil : .connections
    }

    /// Returns the reason to wait of a transfer whose host has asked transfers to wait.
    func restReason(of item: Item) -> PendingReason? {
        guard !item.hasMirrors, item.isConnected else { return nil }
        return rests.end(of: item.host, user: item.user).map { PendingReason(.server, until: $0) }
    }
}

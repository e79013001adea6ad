import FoundationEssentials
import HeapModule
import StageConditions
import StageControl

/// Decides which transfers run.
///
/// It does nothing itself and has no clock: each call says what happened and when, and
/// ``turn(at:)`` then says what to start and what to stop. Users get connections in turns, whatever
/// they have queued; a user's transfers run by priority, then in order of arrival; no host and no
/// session gets more connections than it may.
struct Scheduler {
    /// How much runs at once.
    struct Limits: Equatable, Sendable {
        var total = 16
        var perHost = 6
        /// The most workers that run at once.
        var workers = 16
        /// The most workers of one user that run at once.
        var workersPerUser = 2
        /// The seconds after which a transfer yields to a user who has none, where all users have as many.
        var slice = 300.0
    }

    /// What holds a transfer until somebody does something.
    struct Blocks: OptionSet, Sendable {
        let rawValue: UInt8
        static let client = Blocks(rawValue: 1 << 0)
        static let user = Blocks(rawValue: 1 << 1)
        static let authentication = Blocks(rawValue: 1 << 2)
        /// Another task fetches the same content.
        static let leader = Blocks(rawValue: 1 << 3)
    }

    /// What is known of a transfer.
    struct Item: Sendable {
        let user: UInt32
        let session: Int64
        /// The host that it has a connection to, or ``Scheduler/workerHost`` or ``Scheduler/clientHost``.
        var host: String
        /// How many connections its session gets to one host.
        var sessionLimit: Int
        var priority: Int
        var needs: Needs
        var blocks: Blocks = []
        /// When it may run, and why not before.
        var notBefore: Hold?
        /// Whether it has a connection of the daemon's while it runs, and writes to its files.
        var isConnected: Bool {
            host != Scheduler.workerHost && host != Scheduler.clientHost
        }
        fileprivate(set) var phase = Phase.held
        /// When it was started last.
        fileprivate var started = Date.distantPast

        init(
            user: UInt32,
            session: Int64,
            host: String,
            sessionLimit: Int,
            priority: Int,
            needs: Needs
        ) {
            self.user = user
            self.session = session
            self.host = host
            self.sessionLimit = max(sessionLimit, 1)
            self.priority = priority
            self.needs = needs
        }
    }

    /// Where a transfer is.
    enum Phase: Sendable {
        /// Something holds it.
        case held
        /// It runs as soon as there is a connection.
        case queued
        /// It runs.
        case running
        /// It was told to stop, and has not yet.
        case stopping
    }

    /// What is to be done.
    struct Turn: Equatable, Sendable {
        var start: [Int64] = []
        var stop: [Int64] = []
    }

    private struct Deadline: Comparable {
        var date: Date
        var id: Int64
        static func < (left: Self, right: Self) -> Bool { left.date < right.date }
    }

    private struct SessionHost: Hashable {
        var session: Int64
        var host: String
    }

    private(set) var items: [Int64: Item] = [:]
    var limits: Limits
    /// What the machine says of network and power.
    var conditions = Conditions.unknown {
        didSet { mustReview = mustReview || conditions != oldValue }
    }
    /// Until when nothing runs because the disk is full.
    var fullUntil: Date? { didSet { mustReview = true } }
    private var queues: [UInt32: UserQueue] = [:]
    private var deadlines = Heap<Deadline>()
    private var hosts: [String: Int] = [:]
    private var sessionHosts: [SessionHost: Int] = [:]
    private var users: [UInt32: Int] = [:]
    /// The number of running workers, by user.
    private var workers: [UInt32: Int] = [:]
    private var active: Set<Int64> = []
    /// The number of stagings among the items.
    private var stagings = 0
    private var turns = 0
    /// Which of the turns served a user last.
    private var lastTurns: [UInt32: Int] = [:]
    /// When a transfer has to yield that others wait for.
    private var sliceEnd: Date?
    private var mustReview = false

    init(limits: Limits = Limits()) { self.limits = limits }

    /// Stands in for the host of a staging that a worker carries out.
    static let workerHost = "worker"
    /// Stands in for the host of a staging that its client carries out, which takes nothing of the daemon's.
    static let clientHost = "client"

    /// How many transfers run or are about to stop.
    var activeCount: Int { active.count }

    /// The number of running transfers that have a connection.
    private var connectionCount: Int {
        active.count - hosts[Self.workerHost, default: 0] - hosts[Self.clientHost, default: 0]
    }

    /// When something changes by itself.
    var nextDeadline: Date? {
        [deadlines.min?.date, fullUntil, sliceEnd].compactMap(\.self).min()
    }

    /// Takes a transfer in.
    mutating func add(_ id: Int64, _ item: Item, at now: Date) {
        let old = items.updateValue(item, forKey: id)
        if old == nil, !item.isConnected { stagings += 1 }
        settle(id, at: now)
    }

    /// Changes what holds a transfer, or its priority.
    mutating func change(_ id: Int64, at now: Date, _ change: (inout Item) -> Void) {
        guard var item = items[id] else { return }
        let old = item
        change(&item)
        item.phase = old.phase
        items[id] = item
        if old.phase == .queued {
            queues[old.user]?.withdraw(id)
            items[id]?.phase = .held
        }
        settle(id, at: now)
    }

    /// Forgets a transfer, which has ended for good.
    mutating func remove(_ id: Int64) {
        guard let item = items.removeValue(forKey: id) else { return }
        if !item.isConnected { stagings -= 1 }
        switch item.phase {
        case .held: break
        case .queued: queues[item.user]?.withdraw(id)
        case .running, .stopping: release(id, item)
        }
    }

    /// Takes note that an attempt is over, or not to begin now, and the transfer is not; `hold` says when it
    /// goes on.
    mutating func paused(_ id: Int64, _ hold: Hold?, at now: Date) {
        guard var item = items[id] else { return }
        if item.phase == .running || item.phase == .stopping { release(id, item) }
        if item.phase == .queued { queues[item.user]?.withdraw(id) }
        item.phase = .held
        if let hold { item.notBefore = hold }
        items[id] = item
        settle(id, at: now)
    }

    /// Says what to start and what to stop now.
    mutating func turn(at now: Date) -> Turn {
        var turn = Turn()
        while let first = deadlines.min, first.date <= now {
            deadlines.removeMin()
            settle(first.id, at: now)
        }
        if let until = fullUntil, until <= now { fullUntil = nil }
        for id in active.sorted() where items[id]?.phase == .running && mustStop(id, at: now) {
            items[id]?.phase = .stopping
            turn.stop.append(id)
        }
        mustReview = false
        // Without a free connection only stagings can start.
        while fullUntil == nil && connectionCount < limits.total || stagings > 0, let id = next() {
            items[id]?.started = now
            turn.start.append(id)
        }
        if fullUntil == nil, let id = yielding(apart: Set(turn.start), at: now) {
            items[id]?.phase = .stopping
            turn.stop.append(id)
        }
        return turn
    }

    /// Why a transfer does not run, most lasting reason first; empty if it does.
    func holds(of id: Int64, at now: Date) -> [Hold] {
        guard let item = items[id], item.phase != .running else { return [] }
        var holds: [Hold] = []
        if item.blocks.contains(.client) { holds.append(Hold(.pausedByClient)) }
        if item.blocks.contains(.user) { holds.append(Hold(.pausedByUser)) }
        if item.blocks.contains(.authentication) { holds.append(Hold(.authentication)) }
        holds += item.needs.unmet(in: conditions).map { Hold($0) }
        if let fullUntil, item.isConnected { holds.append(Hold(.disk, until: fullUntil)) }
        if let hold = item.notBefore, hold.until.map({ $0 > now }) ?? false { holds.append(hold) }
        if holds.isEmpty { holds.append(Hold(.slot)) }
        return holds
    }
}

extension Scheduler {
    /// Puts a transfer that does not run where it belongs.
    private mutating func settle(_ id: Int64, at now: Date) {
        guard let item = items[id] else { return }
        guard item.phase == .held else {
            if item.phase == .running { mustReview = true }
            return
        }
        if let until = item.notBefore?.until {
            guard until <= now else {
                deadlines.insert(Deadline(date: until, id: id))
                return
            }
            items[id]?.notBefore = nil
        }
        guard item.blocks.isEmpty else { return }
        items[id]?.phase = .queued
        queues[item.user, default: UserQueue()].append(id, item)
    }

    private func mustStop(_ id: Int64, at now: Date) -> Bool {
        guard let item = items[id] else { return false }
        return fullUntil != nil && item.isConnected || !item.blocks.isEmpty
            || (item.notBefore?.until).map { $0 > now } ?? false
            || !item.needs.unmet(in: conditions).isEmpty
    }

    private mutating func next() -> Int64? {
        let order = queues.keys.sorted { left, right in
            let (one, other) = (users[left, default: 0], users[right, default: 0])
            guard one == other else { return one < other }
            return lastTurns[left, default: 0] < lastTurns[right, default: 0]
        }
        for user in order {
            // Taken out while it is changed, since the rest of the scheduler is asked meanwhile.
            var queue = queues.removeValue(forKey: user) ?? UserQueue()
            let id = queue.next { lane, limit in hasPlace(lane, of: user, limit) }
            if !queue.isEmpty { queues[user] = queue }
            guard let id, let item = items[id] else { continue }
            turns += 1
            lastTurns[user] = turns
            take(id, item)
            return id
        }
        return nil
    }

    /// Whether a transfer of a lane may run beside those that do.
    private func hasPlace(_ lane: UserQueue.Lane, of user: UInt32, _ limit: Int) -> Bool {
        guard lane.needs.unmet(in: conditions).isEmpty else { return false }
        switch lane.host {
        case Self.clientHost: return true
        case Self.workerHost:
            return workers[user, default: 0] < limits.workersPerUser
                && hosts[lane.host, default: 0] < limits.workers
        default:
            let key = SessionHost(session: lane.session, host: lane.host)
            return fullUntil == nil && connectionCount < limits.total
                && hosts[lane.host, default: 0] < limits.perHost
                && sessionHosts[key, default: 0] < limit
        }
    }

    /// The transfer that is stopped so that another user, who has fewer connections and waits, gets one:
    /// the latest of the lowest priority of the user who has most, those apart that only start now.
    ///
    /// One at a time, until what was stopped has ended. Between users who differ by one connection
    /// nothing changes, so it comes to an end. A user who has none gets one all the same when a transfer
    /// has run for ``Limits/slice``: servers that send a byte now and then keep nobody out.
    private mutating func yielding(apart started: Set<Int64>, at now: Date) -> Int64? {
        sliceEnd = nil
        let isSettled = active.allSatisfy { id in
            items[id].map { $0.phase == .running || !$0.isConnected } ?? true
        }
        guard isSettled else { return nil }
        for user in queues.keys.sorted(by: { users[$0, default: 0] < users[$1, default: 0] }) {
            let lane = queues[user]?.firstLane { lane, limit in
                let key = SessionHost(session: lane.session, host: lane.host)
                return ![Self.workerHost, Self.clientHost].contains(lane.host)
                    && lane.needs.unmet(in: conditions).isEmpty
                    && sessionHosts[key, default: 0] < limit
            }
            guard let lane else { continue }
            let isHostFull = hosts[lane.host, default: 0] >= limits.perHost
            guard isHostFull || connectionCount >= limits.total else { continue }
            // Where the host is what is full, its connections are what is shared.
            let running = active.filter {
                isHostFull ? items[$0]?.host == lane.host : items[$0]?.isConnected ?? false
            }
            let shares = Dictionary(grouping: running) { items[$0]?.user ?? user }
            let most = shares.max { $0.value.count < $1.value.count }
            guard let most, most.value.count > (shares[user]?.count ?? 0) + 1 else {
                guard shares[user] == nil, let first = longest(of: running) else { continue }
                if first.end <= now { return first.id }
                sliceEnd = min(sliceEnd ?? first.end, first.end)
                continue
            }
            return most.value.filter { !started.contains($0) }.min { left, right in
                (items[left]?.priority ?? 0, -left) < (items[right]?.priority ?? 0, -right)
            }
        }
        return nil
    }

    /// The transfer that was started first, and when it has had its time.
    private func longest(of running: some Sequence<Int64>) -> (id: Int64, end: Date)? {
        let first = running.min { left, right in
            (items[left]?.started ?? .distantPast, left)
                < (items[right]?.started ?? .distantPast, right)
        }
        guard let first, let start = items[first]?.started else { return nil }
        return (first, start + limits.slice)
    }

    private mutating func take(_ id: Int64, _ item: Item) {
        items[id]?.phase = .running
        active.insert(id)
        hosts[item.host, default: 0] += 1
        sessionHosts[SessionHost(session: item.session, host: item.host), default: 0] += 1
        users[item.user, default: 0] += 1
        if item.host == Self.workerHost { workers[item.user, default: 0] += 1 }
    }

    private mutating func release(_ id: Int64, _ item: Item) {
        active.remove(id)
        let sessionHost = SessionHost(session: item.session, host: item.host)
        hosts[item.host] = Self.lessOne(hosts[item.host])
        sessionHosts[sessionHost] = Self.lessOne(sessionHosts[sessionHost])
        users[item.user] = Self.lessOne(users[item.user])
        if item.host == Self.workerHost { workers[item.user] = Self.lessOne(workers[item.user]) }
    }

    private static func lessOne(_ count: Int?) -> Int? {
        guard let count, count > 1 else { return nil }
        return count - 1
    }
}

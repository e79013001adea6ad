import FoundationEssentials
import HeapModule
import StageConditions
import StageControl

/// Decides which transfers run.
///
/// Does no I/O and has no clock: methods report events with their time, and ``decide(at:)`` returns what to start and
/// stop. Users are served in rotation, regardless of how much they have queued. Transfers of a user run by priority, then by
/// order of arrival. Hosts and sessions have connection limits.
struct Scheduler {
    /// Transfer known to the scheduler.
    struct Item: Sendable {
        let user: UInt32
        let session: Int64
        /// Host that the transfer connects to, or ``Scheduler/workerHost`` or ``Scheduler/clientHost``.
        var host: String
        /// Maximum number of connections that the session has to one host.
        var sessionLimit: Int
        var priority: Int
        var constraints: TransferConstraints
        var blocks: Blocks = []
        /// Earliest date, with the reason for waiting.
        var notBefore: PendingReason?
        /// `true` if the transfer can use other hosts, too.
        var hasMirrors = false
        /// `true` if a person waits for the transfer.
        var isPromoted = false
        /// Set if the transfer does not wait for delays that its host has requested of other transfers.
        var ignoresHostDelays: Bool { hasMirrors || isPromoted }
        /// Set if the transfer occupies a connection of the daemon while it runs, and writes to the daemon's files.
        var isConnected: Bool {
            host != Scheduler.workerHost && host != Scheduler.clientHost
        }
        fileprivate(set) var phase = Phase.pending
        /// Time of the last start.
        fileprivate var started = Date.distantPast

        init(
            user: UInt32,
            session: Int64,
            host: String,
            sessionLimit: Int,
            priority: Int,
            constraints: TransferConstraints
        ) {
            self.user = user
            self.session = session
            self.host = host
            self.sessionLimit = max(sessionLimit, 1)
            self.priority = priority
            self.constraints = constraints
        }
    }

    /// Phase of a transfer.
    enum Phase: Sendable {
        /// Not runnable.
        case pending
        /// Runnable, waiting for a connection.
        case queued
        /// Running.
        case running
        /// Told to stop, but still running.
        case stopping
    }

    private struct Deadline: Comparable {
        var date: Date
        var id: Int64
        static func < (left: Self, right: Self) -> Bool { left.date < right.date }
    }

    private(set) var items: [Int64: Item] = [:]
    /// Identifiers of ``items`` by session, to find those of one session without a search through all.
    private(set) var transfers: [Int64: Set<Int64>] = [:]
    var limits: Limits
    /// Current network and power conditions.
    var conditions = Conditions.unknown {
        didSet { mustReview = mustReview || conditions != oldValue }
    }
    /// Date until which no transfer runs, since the disk is full.
    var fullUntil: Date? { didSet { mustReview = true } }
    /// Delays that hosts have requested.
    var hostDelays = HostDelays()
    /// Transfers whose delays have begun or ended since the last decision, other than with the end of an attempt.
    var changedDelays: Set<Int64> = []
    /// Transfers whose attempts have ended with a delay, or could not begin, until they are taken.
    var delayed: Set<Int64> = []
    /// Hosts whose delays have begun or ended since the last decision, by user.
    var changedHosts: [UInt32: Set<String>] = [:]
    private var queues: [UInt32: UserQueue] = [:]
    /// Earliest dates, soonest first; may contain dates that no longer apply.
    private var deadlines = Heap<Deadline>()
    /// Number of earliest dates, including those that no longer apply.
    var deadlineCount: Int { deadlines.count }
    private(set) var hosts: [String: Int] = [:]
    private(set) var sessionHosts: [SessionHost: Int] = [:]
    private var users: [UInt32: Int] = [:]
    /// Number of running workers, by user.
    private var workers: [UInt32: Int] = [:]
    /// Users of the workers that still run after their transfers were removed, by transfer.
    private var remainingWorkers: [Int64: UInt32] = [:]
    private var active: Set<Int64> = []
    /// Number of stagings among ``items``.
    private var stagings = 0
    /// Number of transfers that were started.
    private var starts = 0
    /// Value of ``starts`` at the latest start for each user.
    private var latestStarts: [UInt32: Int] = [:]
    /// Date at which a running transfer has to yield to a waiting one.
    private var sliceEnd: Date?
    private var mustReview = false

    init(limits: Limits = Limits()) { self.limits = limits }

    /// Placeholder host of stagings that a worker carries out.
    static let workerHost = "worker"
    /// Placeholder host of stagings that the client carries out, which use no resources of the daemon.
    static let clientHost = "client"

    /// Number of transfers that are running or stopping.
    var activeCount: Int { active.count }

    /// Number of running or stopping transfers that occupy a connection of the daemon.
    var connectionCount: Int {
        active.count - hosts[Self.workerHost, default: 0] - hosts[Self.clientHost, default: 0]
    }

    /// Next date that changes the schedule by time alone.
    var nextDeadline: Date? {
        [deadlines.min?.date, fullUntil, sliceEnd, hostDelays.nextEnd].compactMap(\.self).min()
    }

    /// Adds a transfer.
    mutating func add(_ id: Int64, as item: Item, at now: Date) {
        let old = items.updateValue(item, forKey: id)
        transfers[item.session, default: []].insert(id)
        if old == nil, !item.isConnected { stagings += 1 }
        enqueueIfReady(id, at: now)
    }

    /// Changes a transfer's priority, constraints or other reasons for waiting.
    mutating func change(_ id: Int64, at now: Date, by change: (inout Item) -> Void) {
        guard var item = items[id] else { return }
        let old = item
        change(&item)
        item.phase = old.phase
        items[id] = item
        if old.phase == .queued {
            queues[old.user]?.withdraw(id)
            items[id]?.phase = .pending
        }
        enqueueIfReady(id, at: now)
        if old.notBefore != nil, item.notBefore == nil { changedDelays.insert(id) }
    }

    /// Removes a transfer that has ended or is about to end.
    ///
    /// If its attempt is still running (`hasAttempt`), a worker counts until ``workerEnded(_:)``: its process may take
    /// some seconds to end.
    mutating func remove(_ id: Int64, hasAttempt: Bool = false) {
        guard let item = items.removeValue(forKey: id) else { return }
        transfers[item.session]?.remove(id)
        if transfers[item.session]?.isEmpty ?? false { transfers[item.session] = nil }
        if !item.isConnected { stagings -= 1 }
        switch item.phase {
        case .pending: break
        case .queued: queues[item.user]?.withdraw(id)
        case .running, .stopping:
            markStopped(id, as: item)
            if hasAttempt, item.host == Self.workerHost { remainingWorkers[id] = item.user }
        }
    }

    /// Notes that the worker of a removed transfer has ended.
    mutating func workerEnded(_ id: Int64) { remainingWorkers[id] = nil }

    /// Notes that an attempt has ended, or cannot begin, while the transfer has not ended; `reason` is the reason to
    /// wait, with its date.
    mutating func attemptEnded(_ id: Int64, pending reason: PendingReason?, at now: Date) {
        guard var item = items[id] else { return }
        if item.phase == .running || item.phase == .stopping { markStopped(id, as: item) }
        if item.phase == .queued { queues[item.user]?.withdraw(id) }
        item.phase = .pending
        if let reason {
            item.notBefore = reason
            delayed.insert(id)
        }
        items[id] = item
        enqueueIfReady(id, at: now)
    }

    /// Moves all dates by a change of the clock in seconds, so that no delay becomes shorter or longer.
    mutating func clockChanged(by seconds: Double) {
        for (id, item) in items {
            items[id]?.started += seconds
            guard let wait = item.notBefore, let until = wait.until else { continue }
            items[id]?.notBefore?.until = until + seconds
        }
        deadlines = Heap(
            deadlines.unordered.map { Deadline(date: $0.date + seconds, id: $0.id) }
        )
        hostDelays.clockChanged(by: seconds)
        fullUntil = fullUntil.map { $0 + seconds }
        sliceEnd = sliceEnd.map { $0 + seconds }
    }

    /// Returns the transfers to start and to stop now.
    mutating func decide(at now: Date) -> Decision {
        var decision = Decision()
        while let first = deadlines.min, first.date <= now {
            deadlines.removeMin()
            enqueueIfReady(first.id, at: now)
        }
        if let until = fullUntil, until <= now { fullUntil = nil }
        noteChangedDelays(andThoseOf: hostDelays.removeEnded(at: now))
        for id in active.sorted() where items[id]?.phase == .running && mustStop(id, at: now) {
            items[id]?.phase = .stopping
            decision.stop.append(id)
        }
        mustReview = false
        // Without a free connection only stagings can start.
        while fullUntil == nil && connectionCount < limits.total || stagings > 0, let id = next() {
            items[id]?.started = now
            decision.start.append(id)
        }
        // On a full disk, no transfer yields: a date that has passed would fire the timer until there is space.
        sliceEnd = nil
        if fullUntil == nil, let id = transferToPreempt(apart: Set(decision.start), at: now) {
            items[id]?.phase = .stopping
            decision.stop.append(id)
        }
        decision.wait = changedDelays.filter { isWaiting($0) }.sorted()
        changedDelays = []
        return decision
    }
}

extension Scheduler {
    /// Queues a transfer, or registers its earliest date.
    private mutating func enqueueIfReady(_ id: Int64, at now: Date) {
        guard let item = items[id] else { return }
        guard item.phase == .pending else {
            if item.phase == .running { mustReview = true }
            return
        }
        if let until = item.notBefore?.until {
            guard until <= now else {
                insertDeadline(Deadline(date: until, id: id))
                return
            }
            items[id]?.notBefore = nil
            changedDelays.insert(id)
        }
        guard item.blocks.isEmpty else { return }
        items[id]?.phase = .queued
        queues[item.user, default: UserQueue()].append(id, as: item)
    }

    private func isWaiting(_ id: Int64) -> Bool {
        items[id].map { $0.phase == .pending || $0.phase == .queued } ?? false
    }

    private func mustStop(_ id: Int64, at now: Date) -> Bool {
        guard let item = items[id] else { return false }
        return fullUntil != nil && item.isConnected || !item.blocks.isEmpty
            || (item.notBefore?.until).map { $0 > now } ?? false
            || !item.constraints.unmet(in: conditions).isEmpty
    }

    /// Registers an earliest date, and removes those that no longer apply once they are the majority.
    private mutating func insertDeadline(_ deadline: Deadline) {
        guard deadlines.count > 2 * items.count + 1024 else { return deadlines.insert(deadline) }
        deadlines = Heap(
            items.compactMap { id, item in
                guard item.phase == .pending, let until = item.notBefore?.until else { return nil }
                return Deadline(date: until, id: id)
            }
        )
    }

    private mutating func next() -> Int64? {
        let order = queues.keys.sorted { left, right in
            let (one, other) = (users[left, default: 0], users[right, default: 0])
            guard one == other else { return one < other }
            return latestStarts[left, default: 0] < latestStarts[right, default: 0]
        }
        for user in order {
            // Removed from `queues` during the change, since the closure reads other parts of the scheduler.
            var queue = queues.removeValue(forKey: user) ?? UserQueue()
            let id = queue.next { lane, limit in permits(for: lane, of: user, sessionLimit: limit) }
            if !queue.isEmpty { queues[user] = queue }
            guard let id, let item = items[id] else { continue }
            starts += 1
            latestStarts[user] = starts
            markRunning(id, as: item)
            return id
        }
        return nil
    }

    /// Returns whether the limits permit another transfer of a lane.
    private func permits(for lane: UserQueue.Lane, of user: UInt32, sessionLimit limit: Int) -> Bool
    {
        guard lane.constraints.unmet(in: conditions).isEmpty else { return false }
        switch lane.host {
        case Self.clientHost: return true
        case Self.workerHost:
            let remaining = remainingWorkers.values.count { $0 == user }
            return workers[user, default: 0] + remaining < limits.workersPerUser
                && hosts[lane.host, default: 0] + remainingWorkers.count < limits.workers
        default:
            let key = SessionHost(session: lane.session, host: lane.host)
            return fullUntil == nil && connectionCount < limits.total
                && !hostDelays.apply(to: lane, of: user)
                && hosts[lane.host, default: 0] < limits.perHost
                && sessionHosts[key, default: 0] < limit
        }
    }

    /// Returns the transfer to stop in favour of a waiting user who has fewer connections: the newest one with the
    /// lowest priority of the user who has most.
    ///
    /// Ignores transfers that start in this decision. Stops one transfer at a time and waits until it has ended. A
    /// difference of one connection changes nothing, so the exchange terminates. A user without any connection gets
    /// one once a transfer has run for ``Limits/slice``, so that servers which send a byte now and then do not keep
    /// other users waiting forever.
    private mutating func transferToPreempt(apart started: Set<Int64>, at now: Date) -> Int64? {
        let isSettled = active.allSatisfy { id in
            items[id].map { $0.phase == .running || !$0.isConnected } ?? true
        }
        guard isSettled else { return nil }
        for user in queues.keys.sorted(by: { users[$0, default: 0] < users[$1, default: 0] }) {
            let lane = queues[user]?.firstLane { lane, limit in
                let key = SessionHost(session: lane.session, host: lane.host)
                return ![Self.workerHost, Self.clientHost].contains(lane.host)
                    && lane.constraints.unmet(in: conditions).isEmpty
                    && !hostDelays.apply(to: lane, of: user)
                    && sessionHosts[key, default: 0] < limit
            }
            guard let lane else { continue }
            let isHostFull = hosts[lane.host, default: 0] >= limits.perHost
            guard isHostFull || connectionCount >= limits.total else { continue }
            // If the host's limit is reached, only connections to that host can be shared.
            let running = active.filter {
                isHostFull ? items[$0]?.host == lane.host : items[$0]?.isConnected ?? false
            }
            let shares = Dictionary(grouping: running) { items[$0]?.user ?? user }
            let most = shares.max { $0.value.count < $1.value.count }
            guard let most, most.value.count > (shares[user]?.count ?? 0) + 1 else {
                guard shares[user] == nil, let first = firstStarted(of: running) else { continue }
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

    /// Returns the transfer that started first, and the end of its time slice.
    private func firstStarted(of running: some Sequence<Int64>) -> (id: Int64, end: Date)? {
        let first = running.min { left, right in
            (items[left]?.started ?? .distantPast, left)
                < (items[right]?.started ?? .distantPast, right)
        }
        guard let first, let start = items[first]?.started else { return nil }
        return (first, start + limits.slice)
    }

    private mutating func markRunning(_ id: Int64, as item: Item) {
        items[id]?.phase = .running
        active.insert(id)
        hosts[item.host, default: 0] += 1
        sessionHosts[SessionHost(session: item.session, host: item.host), default: 0] += 1
        users[item.user, default: 0] += 1
        if item.host == Self.workerHost { workers[item.user, default: 0] += 1 }
    }

    private mutating func markStopped(_ id: Int64, as item: Item) {
        active.remove(id)
        let sessionHost = SessionHost(session: item.session, host: item.host)
        hosts[item.host] = Self.decremented(hosts[item.host])
        sessionHosts[sessionHost] = Self.decremented(sessionHosts[sessionHost])
        users[item.user] = Self.decremented(users[item.user])
        if item.host == Self.workerHost {
            workers[item.user] = Self.decremented(workers[item.user])
        }
    }

    private static func decremented(_ count: Int?) -> Int? {
        guard let count, count > 1 else { return nil }
        return count - 1
    }
}

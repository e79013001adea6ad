import FoundationEssentials
import HeapModule
import StageConditions
import StageControl
import StageModel

/// Decides what becomes of the daemon's sessions and tasks.
///
/// A value without I/O, clock or randomness: a method takes what has happened, and when, and returns what is to be done.
/// Each decision is made within one call, so the state that it is made from cannot change before it counts. Work that
/// takes time has two calls: one before it, which reserves, and one after it, which decides by the state at that time.
///
/// A task that has not ended is in the scheduler, or in ``ending``; of one that the journal does not know any more
/// nothing is kept.
struct TransferState {
    /// A session, and what is known of it only while the daemon runs.
    struct Session {
        var record: SessionRecord
        /// The number of its tasks that have not ended.
        var unfinished = 0
        /// The number of its tasks that are being written to the journal.
        var reserved = 0
        /// Whether a client receives its events.
        var isAttached = false
        /// The token of its handler's launch, from the decision until the handler has ended.
        var launch: String?
        /// Whether it is being removed: nothing new comes to it.
        var isEnding = false
        /// The tasks that wait for the answer to a challenge that the journal has.
        var challenged: Set<Int64> = []
    }

    /// An action for the caller, to be performed at once and in order.
    enum Effect: Equatable {
        /// Begin an attempt of a task of a session.
        case start(Int64, session: Int64, takesAnyAnswer: Bool)
        /// End an attempt, which may wait for an answer that is due.
        case yield(Int64)
        /// End an attempt at once.
        case stop(Int64)
    }

    /// The date at which a task is given up.
    struct Expiry: Comparable {
        var date: Date
        var task: Int64
        static func < (left: Self, right: Self) -> Bool { left.date < right.date }
    }

    var configuration: DaemonConfiguration {
        didSet { scheduler.limits = Self.limits(configuration) }
    }
    var scheduler: Scheduler
    var sessions: [Int64: Session] = [:]
    /// The tasks that were taken out of the scheduler and whose end is not on disk yet, with their sessions.
    var ending: [Int64: Int64] = [:]
    /// The tasks among ``ending`` whose content is being given its place.
    var placing: Set<Int64> = []
    /// The tasks that have an attempt; its files are not to be touched.
    var attempts: Set<Int64> = []
    /// The tasks among ``attempts`` whose attempt does not count any more.
    var halted: Set<Int64> = []
    var histories: [Int64: AttemptHistory] = [:]
    var sharing = ContentSharing()
    var unreachable = UnreachableHosts()
    /// When tasks are given up, earliest first; with tasks that have ended.
    var expiries = Heap<Expiry>()
    /// The tasks of each user that wait for bytes of others to go.
    var quotaHolds: [UInt32: Set<Int64>] = [:]
    /// The free space when the disk was found full.
    var spaceWhenFull = ByteCount.zero
    /// The sessions that are being written to the journal.
    var reservations: [SessionReservation] = []
    /// When expired resume data was last looked for.
    var lastSweep: Date

    init(configuration: DaemonConfiguration, at now: Date) {
        self.configuration = configuration
        lastSweep = now
        scheduler = Scheduler(limits: Self.limits(configuration))
    }

    private static func limits(_ configuration: DaemonConfiguration) -> Scheduler.Limits {
        Scheduler.Limits(
            total: configuration.connections,
            perHost: configuration.connectionsPerHost
        )
    }

    /// The longest wait of a task whose user has no bytes left.
    static let quotaWait = 60.0
    /// The seconds for which nothing runs after the disk was found full, until it is looked at again.
    static let diskWait = 15.0

    /// Decides which attempts begin and end.
    mutating func turn(at now: Date) -> [Effect] {
        let turn = scheduler.turn(at: now)
        var effects = turn.stop.map { Effect.yield($0) }
        for id in turn.start {
            guard let item = scheduler.items[id] else { continue }
            attempts.insert(id)
            effects.append(
                .start(
                    id,
                    session: item.session,
                    takesAnyAnswer: histories[id]?.takesAnyAnswer ?? false
                )
            )
        }
        return effects
    }

    /// The next date at which something changes by itself, apart from what waits for the journal.
    func nextDate(at now: Date) -> Date? {
        var dates = [scheduler.nextDeadline, expiries.min?.date]
        // A launch whose date has passed waits for another event.
        for session in sessions.values where mayLaunch(session) {
            if let date = session.record.relaunch.notBefore, date > now { dates.append(date) }
        }
        return dates.compactMap(\.self).min()
    }

    /// Notes what the machine says of network and power, and ends the waits that this makes pointless.
    ///
    /// - Returns: Whether it is news.
    mutating func setConditions(_ conditions: Conditions, at now: Date) -> Bool {
        let old = scheduler.conditions
        guard conditions != old else { return false }
        scheduler.conditions = conditions
        if old.connectivity == .portal || old.connectivity == .none {
            // The reasons of these waits are gone.
            endWaits(at: now) { $0.notBefore?.reason == .portal }
            for id in unreachable.removeAll() { endWait(of: id, for: [.backoff], at: now) }
            endWaits(at: now) {
                $0.host == Scheduler.workerHost && $0.notBefore?.reason == .backoff
            }
        }
        handOverAll(at: now)
        return true
    }
}

extension TransferState {
    /// Starts nothing until there is space again.
    mutating func holdForSpace(free: ByteCount, at now: Date) {
        spaceWhenFull = free
        scheduler.fullUntil = now + Self.diskWait
    }

    /// Whether it is time to look for space.
    func isSpaceDue(at now: Date) -> Bool { scheduler.fullUntil.map { $0 <= now } ?? false }

    /// Goes on waiting for space, if there is none yet.
    mutating func checkSpace(free: ByteCount, at now: Date) {
        guard isSpaceDue(at: now) else { return }
        // Some room was made; an attempt will show whether it is enough.
        let isEnough =
            free >= configuration.reserve || free >= spaceWhenFull + .mebibytes(1)
        scheduler.fullUntil = isEnough ? nil : now + Self.diskWait
    }

    /// Puts a task off whose file or record the disk has refused.
    mutating func waitForDisk(_ id: Int64, at now: Date) {
        scheduler.paused(id, Hold(.disk, until: now + Self.diskWait), at: now)
    }

    /// Whether expired resume data is to be looked for, once a day.
    mutating func isSweepDue(at now: Date) -> Bool {
        guard lastSweep + 86_400 < now else { return false }
        lastSweep = now
        return true
    }

    /// Takes out the tasks whose time has run out.
    mutating func expired(at now: Date) -> [Int64] {
        var tasks: [Int64] = []
        while let expiry = expiries.min, expiry.date <= now {
            expiries.removeMin()
            if scheduler.items[expiry.task] != nil { tasks.append(expiry.task) }
        }
        return tasks
    }

    /// Has a task that could not be given up expire again.
    mutating func postponeExpiry(of id: Int64, at now: Date) {
        expiries.insert(Expiry(date: now + Self.diskWait, task: id))
    }
}

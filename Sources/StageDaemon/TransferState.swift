import FoundationEssentials
import HeapModule
import StageConditions
import StageControl
import StageModel

/// State machine for all sessions and tasks of the daemon.
///
/// Has no I/O, clock or randomness: methods take events with their time, and return what to do. Each decision is made
/// within one call, on the current state. Work that takes time has two calls: the one before it makes a reservation,
/// and the one after it decides on the state at that time.
///
/// Every unfinished task is either in the scheduler or in ``ending``, unless the journal could not be read. Nothing is kept
/// of tasks that the journal has removed.
struct TransferState {
    /// Session with its in-memory state.
    struct Session {
        var record: SessionRecord
        /// Number of unfinished tasks.
        var unfinished = 0
        /// Number of tasks that are being written to the journal.
        var reserved = 0
        /// Number of these tasks that fail instead of waiting.
        var reservedWithoutRetry = 0
        /// Set if the session would have been removed, but for tasks that were being created in it.
        ///
        /// If these are refused, it is removed, while a session that never had a task or client stays for a repeated request.
        var wasOverDuringCreation = false
        /// Set while a client receives the session's events.
        var isAttached = false
        /// Earliest date at which a client that attaches ends delays, since an earlier one has.
        var nextEndOfDelays = Date.distantPast
        /// Set if a client has attached before that date, so that the delays end then.
        var mustEndDelays = false
        /// Token of the handler's launch, from the decision to the handler's end.
        var launch: String?
        /// Set while the session is being removed and accepts nothing new.
        var isEnding = false
        /// Tasks that wait for an answer to a recorded challenge.
        var challenged: Set<Int64> = []
        /// Sessions that this one replaces, until they are removed; its stagings wait for that.
        var predecessors: Set<Int64> = []
    }

    /// Action to perform at once and in order.
    enum Effect: Equatable {
        /// Start an attempt.
        case start(Int64, session: Int64, acceptsAnyStatus: Bool)
        /// Stop an attempt, after a time limit if it waits for its response.
        case yield(Int64)
        /// Stop an attempt at once.
        case stop(Int64)
        /// Tell clients why a task waits now.
        case wait(Int64)
        /// Fail a task that was removed from the scheduler, since it would have to wait.
        case fail(Int64, TransferFailure)
    }

    /// Deadline of a task.
    struct Expiry: Comparable {
        var date: Date
        var task: Int64
        static func < (left: Self, right: Self) -> Bool { left.date < right.date }
    }

    var configuration: DaemonConfiguration {
        didSet {
            let limits = Self.limits(configuration)
            // The transfer engine keeps its limits: beyond them, transfers would wait there and count as running.
            scheduler.limits.total = min(limits.total, engineLimits.total)
            scheduler.limits.perHost = min(limits.perHost, engineLimits.perHost)
        }
    }
    /// Limits of the transfer engine: those of the configuration at the start.
    private let engineLimits: Scheduler.Limits
    var scheduler: Scheduler
    var sessions: [Int64: Session] = [:]
    /// Tasks removed from the scheduler whose end is not recorded yet, with their sessions.
    var ending: [Int64: Int64] = [:]
    /// Tasks of ``ending`` whose content is being committed.
    var committing: Set<Int64> = []
    /// Tasks with a running attempt, which may write to the task's files.
    var attempts: Set<Int64> = []
    /// Tasks of ``attempts`` whose result is to be discarded.
    var aborted: Set<Int64> = []
    var histories: [Int64: AttemptHistory] = [:]
    /// Memory of the response heads in ``histories``.
    var heads = ResponseHeadBudget()
    /// Counts since the daemon's start, by the user who owns the sessions.
    var counters: [UInt32: TransferCounters] = [:]
    var sharing = ContentSharing()
    /// Tasks that fail instead of waiting; may contain tasks whose end is not recorded yet.
    var withoutRetry: Set<Int64> = []
    var unreachable = UnreachableHosts()
    /// Time at which the network last returned or changed.
    var networkChange = Date.distantPast
    /// Deadlines of tasks, earliest first; may contain tasks that have ended.
    var expiries = Heap<Expiry>()
    /// Tasks that wait for quota, by user.
    var quotaWaiters: [UInt32: Set<Int64>] = [:]
    /// Free space when the disk was last found full.
    var spaceWhenFull = ByteCount.zero
    /// Error of the write for which transfers wait for the disk; `nil` if it is full.
    private(set) var diskProblem: String?
    /// Time at which the disk was last found full or stopped a write; `nil` if transfers do not wait for it.
    private var latestDiskFailure: Date?
    /// Tasks of ``ending`` whose end the journal could not record yet.
    var unrecorded: Set<Int64> = []
    /// Users of the handlers that start or run, by the tokens of the launches.
    ///
    /// A handler may outlive its session: it has some seconds to end.
    var launches: [String: UInt32] = [:]
    /// Sessions that are being written to the journal.
    var reservations: [SessionReservation] = []
    /// Time of the last removal of expired resume data.
    var lastResumeDataRemoval: Date

    init(configuration: DaemonConfiguration, at now: Date) {
        self.configuration = configuration
        lastResumeDataRemoval = now
        engineLimits = Self.limits(configuration)
        scheduler = Scheduler(limits: engineLimits)
    }

    private static func limits(_ configuration: DaemonConfiguration) -> Scheduler.Limits {
        Scheduler.Limits(
            total: configuration.connections,
            perHost: configuration.connectionsPerHost
        )
    }

    /// Maximum delay in seconds of a task that waits for quota.
    static let quotaWait = 60.0
    /// Seconds between checks of a full disk, during which no transfer runs.
    static let diskWait = 15.0

    /// Runs the scheduler, which decides which attempts start and stop.
    mutating func runScheduler(at now: Date) -> [Effect] {
        endDueWaits(at: now)
        var effects = takeStalled(at: now)
        let decision = scheduler.decide(at: now)
        effects += decision.stop.map { Effect.yield($0) }
        for id in decision.start {
            guard let item = scheduler.items[id] else { continue }
            attempts.insert(id)
            effects.append(
                .start(
                    id,
                    session: item.session,
                    acceptsAnyStatus: histories[id]?.acceptsAnyStatus ?? false
                )
            )
        }
        return effects + decision.wait.map { Effect.wait($0) }
    }

    /// Returns the next dates that change a decision by time alone, except retried journal writes.
    func nextDates(at now: Date) -> AlarmSchedule.Dates {
        var ofScheduler = [scheduler.nextDeadline, diskWaitEnd]
        var others = [expiries.min?.date]
        // A launch whose date has passed waits for another event, such as the end of another handler.
        for session in sessions.values {
            if session.mustEndDelays { ofScheduler.append(session.nextEndOfDelays) }
            guard mayLaunch(session), let date = session.record.launchLimiter.notBefore, date > now
            else { continue }
            others.append(date)
        }
        return AlarmSchedule.Dates(
            scheduler: ofScheduler.compactMap(\.self).min(),
            other: others.compactMap(\.self).min()
        )
    }

    /// Applies changed network and power conditions, and ends the delays that they make pointless.
    ///
    /// - Returns: Whether the conditions have changed.
    mutating func setConditions(_ conditions: Conditions, at now: Date) -> Bool {
        let old = scheduler.conditions
        guard conditions != old else { return false }
        scheduler.conditions = conditions
        if old.connectivity == .portal || old.connectivity == .none { networkChanged(at: now) }
        handOverAll(at: now)
        return true
    }

    /// Ends the delays of tasks that may succeed after a change of the network: those that could not reach their hosts,
    /// those that wait for a portal, and those whose workers have failed.
    ///
    /// An attempt that began before the change is also repeated at once if it does not reach its host.
    mutating func networkChanged(at now: Date) {
        networkChange = now
        endWaits(at: now) { $0.notBefore?.kind == .portal }
        for id in unreachable.removeAll() { endWait(of: id, for: [.backoff], at: now) }
        endWaits(at: now) {
            $0.host == Scheduler.workerHost && $0.notBefore?.kind == .backoff
        }
    }
}

extension TransferState {
    /// Moves all dates by a change of the clock in seconds: tasks keep the time that is left for them, and delays their
    /// length.
    mutating func clockChanged(by seconds: Double) {
        scheduler.clockChanged(by: seconds)
        expiries = Heap(
            expiries.unordered.map { Expiry(date: $0.date + seconds, task: $0.task) }
        )
        for id in sessions.keys {
            sessions[id]?.record.launchLimiter.clockChanged(by: seconds)
            sessions[id]?.nextEndOfDelays += seconds
        }
        lastResumeDataRemoval += seconds
        networkChange += seconds
        latestDiskFailure = latestDiskFailure.map { $0 + seconds }
    }

    /// Stops scheduling until the disk has space.
    ///
    /// - Parameters:
    ///   - free: The free space.
    ///   - problem: The error of a write; `nil` if the disk is full.
    ///   - now: The current time.
    /// - Returns: Whether the wait begins; `false` if ``endDiskWait(at:)`` has not ended an earlier one.
    @discardableResult
    mutating func waitForSpace(free: ByteCount, problem: String? = nil, at now: Date) -> Bool {
        spaceWhenFull = free
        diskProblem = problem
        scheduler.fullUntil = now + Self.diskWait
        defer { latestDiskFailure = now }
        return latestDiskFailure == nil
    }

    /// Ends the wait for the disk once it has stopped no transfer for a while; returns whether the wait has ended now.
    ///
    /// Free space alone proves nothing: a file system may be read-only, or have no free inodes.
    mutating func endDiskWait(at now: Date) -> Bool {
        guard let end = diskWaitEnd, end <= now else { return false }
        latestDiskFailure = nil
        return true
    }

    /// Date at which the wait for the disk ends if the disk stops no transfer before; `nil` if there is no such wait, or
    /// while the disk is full or the end of a task cannot be recorded.
    private var diskWaitEnd: Date? {
        guard scheduler.fullUntil == nil, unrecorded.isEmpty else { return nil }
        return latestDiskFailure.map { $0 + 2 * Self.diskWait }
    }

    /// Returns whether the free space is due to be checked.
    func isSpaceDue(at now: Date) -> Bool { scheduler.fullUntil.map { $0 <= now } ?? false }

    /// Resumes scheduling if the disk has space, and waits again otherwise.
    mutating func checkSpace(free: ByteCount, at now: Date) {
        guard isSpaceDue(at: now) else { return }
        // Some space was freed; an attempt will show whether it suffices.
        let isEnough =
            free >= configuration.reserve || free >= spaceWhenFull + .mebibytes(1)
        scheduler.fullUntil = isEnough ? nil : now + Self.diskWait
        if !isEnough { latestDiskFailure = now }
    }

    /// Postpones a task after a disk error of its file or record.
    ///
    /// - Parameters:
    ///   - id: The task's identifier.
    ///   - problem: The error; `nil` if the disk is full.
    ///   - now: The current time.
    mutating func waitForDisk(_ id: Int64, problem: String? = nil, at now: Date) {
        scheduler.attemptEnded(
            id,
            pending: PendingReason(.disk, until: now + Self.diskWait, problem: problem),
            at: now
        )
    }

    /// Returns whether to remove expired resume data, once a day.
    mutating func isResumeDataRemovalDue(at now: Date) -> Bool {
        guard lastResumeDataRemoval + 86_400 < now else { return false }
        lastResumeDataRemoval = now
        return true
    }

    /// Returns the tasks that have reached their deadline.
    mutating func expired(at now: Date) -> [Int64] {
        var tasks: [Int64] = []
        while let expiry = expiries.min, expiry.date <= now {
            expiries.removeMin()
            if scheduler.items[expiry.task] != nil { tasks.append(expiry.task) }
        }
        return tasks
    }

    /// Lets a task expire again later, since it could not be ended now.
    mutating func postponeExpiry(of id: Int64, at now: Date) {
        expiries.insert(Expiry(date: now + Self.diskWait, task: id))
    }
}

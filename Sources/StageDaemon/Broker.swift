import FoundationEssentials
import HeapModule
import Logging
import StageConditions
import StageControl
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Knows all sessions and tasks, and decides, with the ``Scheduler``, what happens next.
///
/// It starts nothing itself: what is to be done goes out as ``Command``s, and what came of it comes
/// back by calls. What a client was promised is in the ``Journal`` before it is said.
actor Broker {
    /// What is to be done.
    enum Command: Sendable {
        /// Carry out an attempt of a task.
        case run(Int64, LiveTransfer)
        /// Start a handler.
        case launch(Launch)
    }

    /// A session, and what is known of it only while the daemon runs.
    struct LiveSession {
        var record: SessionRecord
        var unfinished = 0
        var isAttached = false
        var launch: Launch?
        /// Whether it is being removed: nothing new comes to it.
        var isEnding = false
        /// Whether a task waits for the answer to a challenge that nobody was told of.
        var isChallenged = false
    }

    /// How tasks have ended.
    struct Ending {
        var outcomes: [(id: Int64, event: SessionEvent)]
        var remnant: Remnant?
        /// The name of files that are not needed any more.
        var superfluous: String?
    }

    /// When a task is given up.
    struct Expiry: Comparable {
        var date: Date
        var task: Int64
        static func < (left: Self, right: Self) -> Bool { left.date < right.date }
    }

    let store: TransferStore
    let journal: Journal
    let finisher: Finisher
    let storage: UserStorage
    private(set) var configuration: DaemonConfiguration
    let logger: Logger
    /// Whether there is a program that stages packs.
    let hasWorkers: Bool
    let boot = BootID.current
    nonisolated let commands: AsyncStream<Command>
    let command: AsyncStream<Command>.Continuation
    nonisolated let feed = EventFeed()
    private nonisolated let timer: WakeTimer
    private nonisolated let alarms: AsyncStream<Void>

    var scheduler: Scheduler
    var sessions: [Int64: LiveSession] = [:]
    var live: [Int64: LiveTransfer] = [:]
    var extras: [Int64: Extra] = [:]
    /// The task that fetches some content, by ``contentKey(_:user:)``.
    var leaders: [String: Int64] = [:]
    /// The tasks that wait since their host could not be reached.
    var unreachable: [String: Set<Int64>] = [:]
    /// When tasks are given up, earliest first.
    var expiries = Heap<Expiry>()
    var hasStarted = false
    /// Before then the scheduler is not asked again.
    var nextTurn = ContinuousClock.now
    var isTurnPutOff = false
    /// Who waits for an attempt to have stopped; what it comes to does not count any more.
    private var halting: [Int64: [CheckedContinuation<Void, Never>]] = [:]
    /// Ends that could not be written down yet.
    var unrecorded: [Ending] = []
    /// The tasks of each user that wait for bytes of others to go.
    var quotaHolds: [UInt32: Set<Int64>] = [:]
    /// When it was last looked for what nobody goes on with.
    var lastSweep = Date.now
    /// What was free when the disk was found full.
    var spaceWhenFull = ByteCount.zero

    init(
        store: TransferStore,
        journal: Journal,
        configuration: DaemonConfiguration,
        hasWorkers: Bool,
        logger: Logger
    ) {
        self.store = store
        self.hasWorkers = hasWorkers
        self.journal = journal
        self.configuration = configuration
        self.logger = logger
        finisher = Finisher(store: store, journal: journal, logger: logger)
        storage = UserStorage(store.root, configuration)
        (commands, command) = AsyncStream.makeStream()
        let (alarms, alarm) = AsyncStream.makeStream(
            of: Void.self,
            bufferingPolicy: .bufferingNewest(1)
        )
        self.alarms = alarms
        timer = WakeTimer { alarm.yield() }
        scheduler = Scheduler(
            limits: Scheduler.Limits(
                total: configuration.connections,
                perHost: configuration.connectionsPerHost
            )
        )
    }

    /// Looks after what changes by itself with time, until the task is cancelled.
    func watchClock() async {
        for await _ in alarms {
            await recordEndings()
            await sweepRemnants()
            checkSpace()
            await expire()
            handOverAll()
            for id in sessions.keys.sorted() { await considerLaunch(id) }
            turn()
        }
    }

    /// Works by another configuration from now on.
    func configure(_ configuration: DaemonConfiguration) {
        self.configuration = configuration
        storage.configure(configuration)
        scheduler.limits = Scheduler.Limits(
            total: configuration.connections,
            perHost: configuration.connectionsPerHost
        )
        turn()
    }

    /// Takes note of what the machine says of network and power.
    func setConditions(_ conditions: Conditions) {
        let old = scheduler.conditions
        guard conditions != old else { return }
        scheduler.conditions = conditions
        logger.info("Conditions changed", metadata: ["conditions": "\(conditions)"])
        if old.connectivity == .portal || old.connectivity == .none {
            // Nobody needs to wait any longer for what is gone.
            endWaits { $0.notBefore?.reason == .portal }
            endWaitsForHosts()
            endWaits { $0.host == Scheduler.workerHost && $0.notBefore?.reason == .backoff }
        }
        handOverAll()
        tellHolds()
        turn()
    }

    /// Begins to carry out what there is to do, once it is known what the machine says.
    func start(_ conditions: Conditions) async {
        scheduler.conditions = conditions
        hasStarted = true
        for id in sessions.keys.sorted() { await considerLaunch(id) }
        turn()
        tellHolds()
    }

    /// Ends an attempt of a task, if one runs, and returns once nothing more is written by it.
    ///
    /// What it comes to does not count.
    func halt(_ id: Int64) async {
        guard let transfer = live[id] else { return }
        transfer.switchOff.stop()
        await withCheckedContinuation { halting[id, default: []].append($0) }
    }

    /// Lets nobody wait any more for attempts that were never begun: the daemon ends.
    func abandonHalts() {
        for id in Array(halting.keys) { _ = hasEnded(id) }
    }

    /// Takes note that an attempt is over; returns whether what it came to counts.
    func hasEnded(_ id: Int64) -> Bool {
        live[id] = nil
        guard let waiting = halting.removeValue(forKey: id) else { return true }
        for continuation in waiting { continuation.resume() }
        return false
    }

    /// Returns the input of an attempt, or `nil` if it is not wanted any more, or not now.
    func begin(_ id: Int64) async -> Attempt? {
        do throws(DaemonError) {
            guard let task = try await journal.task(id),
                let session = sessions[task.record.session], scheduler.items[id] != nil
            else {
                _ = hasEnded(id)
                scheduler.remove(id)
                return nil
            }
            guard !task.isLost, !task.record.hasProvisionalEnd else {
                _ = hasEnded(id)
                await fail(task, task.isLost ? FullTask.loss : .lostAnswer)
                return nil
            }
            guard task.record.state != .verified else {
                _ = hasEnded(id)
                scheduler.remove(id)
                await complete(task.record)
                turn()
                return nil
            }
            // What an attempt comes to is written down, too.
            let used = try await journal.usage(of: session.record.user)
            guard used <= configuration.journalPerUser.rawValue else {
                _ = hasEnded(id)
                scheduler.paused(id, Hold(.quota, until: .now + Self.quotaWait), at: .now)
                if task.request.kind == .staging { assign(id) }
                setTimer()
                return nil
            }
            var owner = session.record
            // They are for servers that the session's user chose, not for those of a group's member.
            if task.record.creator != owner.user { owner.configuration.headers = [:] }
            return Attempt(
                task: task,
                owner: owner,
                failures: extras[id]?.failures ?? 0,
                isOfClient: scheduler.items[id]?.host == Scheduler.clientHost
            )
        } catch {
            logger.error("A task could not be read", metadata: ["error": "\(error)"])
            _ = hasEnded(id)
            scheduler.paused(id, Hold(.backoff, until: .now + 60), at: .now)
            if scheduler.items[id]?.host == Scheduler.clientHost { assign(id) }
            return nil
        }
    }

    /// The longest wait of a task whose user has no bytes left.
    static let quotaWait = 60.0

    /// Sets the clock to the next moment at which something changes by itself.
    func setTimer() {
        var dates = [scheduler.nextDeadline, expiries.min?.date]
        if !unrecorded.isEmpty { dates.append(.now + Self.diskWait) }
        // What has passed and was not done waits for something else than time.
        for session in sessions.values where mayLaunch(session) {
            if let date = session.record.relaunch.notBefore, date > .now { dates.append(date) }
        }
        timer.set(dates.compactMap(\.self).min())
    }

    /// Has a handler started.
    func send(_ launch: Launch) { command.yield(.launch(launch)) }
}

extension Broker {
    /// Delivers events of running transfers, until the task is cancelled.
    func relay() async {
        for await (event, session) in feed.progress { distribute(event, session) }
    }

    /// Tells the clients of a session, and watchers, of something that is not kept.
    func distribute(_ event: SessionEvent, _ session: Int64) {
        guard let record = sessions[session]?.record else { return }
        feed.send(event, of: record)
    }

    /// Tells of a task.
    func tell(_ kind: SessionEvent.Kind, _ task: Int64, _ fill: (inout SessionEvent) -> Void) {
        guard let session = scheduler.items[task]?.session, feed.hasListeners(of: session)
        else { return }
        var event = SessionEvent(kind, time: .now)
        event.task = task
        fill(&event)
        distribute(event, session)
    }

    /// Tells of everything that waits, because the reasons have changed.
    private func tellHolds() {
        let now = Date.now
        // Clients of long lists ask when they want to know.
        for id in scheduler.items.keys.sorted().prefix(1000) {
            let holds = holds(of: id, at: now)
            tell(.changed, id) { event in
                event.state = holds.isEmpty ? .running : .waiting
                event.holds = holds
            }
        }
    }

    /// What the daemon says of itself.
    func status(_ caller: Caller, _ version: String) -> ServiceStatus {
        let seen = sessions.values.filter { caller.sees($0.record) }
        return ServiceStatus(
            version: version,
            process: Int(ProcessInfo.processInfo.processIdentifier),
            user: caller.user,
            unfinishedTasks: seen.reduce(0) { $0 + $1.unfinished },
            conditions: scheduler.conditions.texts,
            staged: store.location(of: 0, user: caller.user).removingLastComponent().string
        )
    }
}

extension Conditions {
    /// The conditions as people read them.
    fileprivate var texts: [String: String] {
        func text(_ value: Bool?) -> String { value.map { $0 ? "yes" : "no" } ?? "unknown" }
        return [
            "connectivity": connectivity.rawValue,
            "metered": text(isExpensive),
            "constrained": text(isConstrained),
            "onBattery": text(isOnBattery),
            "powerSaver": text(isSavingPower),
        ]
    }
}

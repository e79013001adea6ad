import DequeModule
import FoundationEssentials
import Logging
import StageConditions
import StageControl
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Asks the journal, tells ``TransferState`` what has happened, and performs what that decides.
///
/// It decides nothing itself. What a client was promised is in the ``Journal`` before it is said. Attempts and handlers
/// are started by others, to whom ``Command``s go out; what came of them comes back by calls.
actor Broker {
    /// Work to start.
    enum Command: Sendable {
        /// Carry out an attempt of a task.
        case run(Int64, LiveTransfer)
        /// Start a handler.
        case launch(Launch)
    }

    /// How tasks have ended.
    struct Ending {
        var outcomes: [(id: Int64, event: SessionEvent)]
        var remnant: Remnant?
        /// The name of files that are not needed any more.
        var superfluous: String?
    }

    let store: TransferStore
    let journal: Journal
    let finisher: Finisher
    let storage: UserStorage
    let logger: Logger
    /// Whether there is a program that stages packs.
    let hasWorkers: Bool
    let boot = BootID.current
    nonisolated let commands: AsyncStream<Command>
    let command: AsyncStream<Command>.Continuation
    /// Upload resources that servers are asked to delete.
    nonisolated let deletions: AsyncStream<ResourceDeletion>
    let deletionQueue: AsyncStream<ResourceDeletion>.Continuation
    nonisolated let feed = EventFeed()
    private nonisolated let timer: WakeTimer
    private nonisolated let alarms: AsyncStream<Void>

    /// All that decisions are made from.
    var state: TransferState
    /// The attempts of ``TransferState/attempts``.
    var live: [Int64: LiveTransfer] = [:]
    /// The launches that were started.
    var launches: [Int64: Launch] = [:]
    /// The files of tasks that are about to be made.
    lazy var preparation = TaskPreparation(
        journal: journal,
        store: store,
        storage: storage,
        releaseMoved: { [weak self] in await self?.releaseMoved(of: $0) ?? false },
        release: { [weak self] in await self?.release($0) }
    )
    /// The continuations of calls that wait until nothing writes to the files of a task.
    private var halting: [Int64: [CheckedContinuation<Void, Never>]] = [:]
    /// The changes of tasks that wait for the one before to be in the journal.
    private var changes: [Int64: [CheckedContinuation<Void, Never>]] = [:]
    /// Ends that could not be written down yet.
    var unrecorded: [Ending] = []
    /// The tasks that are to go on and could not be read from the journal yet.
    var unadmitted: Set<Int64> = []
    /// Whether the daemon ends, and no attempt runs any more.
    private var hasAbandonedHalts = false
    private var hasStarted = false
    /// Before then the scheduler is not asked again.
    private var nextTurn = ContinuousClock.now
    private var isTurnPutOff = false

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
        self.logger = logger
        finisher = Finisher(store: store, journal: journal, logger: logger)
        storage = UserStorage(store.root, configuration)
        state = TransferState(configuration: configuration, at: .now)
        (commands, command) = AsyncStream.makeStream()
        (deletions, deletionQueue) = AsyncStream.makeStream(
            bufferingPolicy: .bufferingOldest(Self.mostDeletions)
        )
        let (alarms, alarm) = AsyncStream.makeStream(
            of: Void.self,
            bufferingPolicy: .bufferingNewest(1)
        )
        self.alarms = alarms
        timer = WakeTimer { alarm.yield() }
    }

    /// Looks after what changes by itself with time, until the task is cancelled.
    func watchClock() async {
        for await _ in alarms {
            await recordEndings()
            await readmitAll()
            await sweepRemnants()
            if state.isSpaceDue(at: .now) { state.checkSpace(free: freeSpace, at: .now) }
            await expire()
            state.handOverAll(at: .now)
            for id in state.sessions.keys.sorted() { await considerLaunch(id) }
            turn()
        }
    }

    /// Works by another configuration from now on.
    func configure(_ configuration: DaemonConfiguration) {
        storage.configure(configuration)
        state.configuration = configuration
        turn()
    }

    /// Takes note of what the machine says of network and power.
    func setConditions(_ conditions: Conditions) {
        guard state.setConditions(conditions, at: .now) else { return }
        logger.info("Conditions changed", metadata: ["conditions": "\(conditions)"])
        tellAll()
        turn()
    }

    /// Begins to carry out what there is to do, once it is known what the machine says.
    func start(_ conditions: Conditions) async {
        state.scheduler.conditions = conditions
        hasStarted = true
        for id in state.sessions.keys.sorted() { await considerLaunch(id) }
        turn()
        tellAll()
    }

    /// Lets the value decide which attempts begin and end.
    ///
    /// One user's tens of thousands of hosts make a turn long. Turns take a tenth of the time at most: the
    /// next one is put off, and requests are answered in between.
    func turn() {
        guard hasStarted, !isTurnPutOff else { return }
        let start = ContinuousClock.now
        guard start >= nextTurn else {
            isTurnPutOff = true
            Task {
                // Nothing cancels it; a daemon that ends decides nothing more.
                try? await Task.sleep(until: nextTurn, clock: .continuous)
                isTurnPutOff = false
                self.turn()
            }
            return
        }
        defer {
            let spent = ContinuousClock.now - start
            if spent > .milliseconds(5) { nextTurn = .now + spent * 9 }
        }
        perform(state.turn(at: .now))
        setTimer()
    }

    /// Performs what the value has decided.
    func perform(_ effects: [TransferState.Effect]) {
        for effect in effects {
            switch effect {
            case .yield(let id): live[id]?.stop()
            case .stop(let id): live[id]?.switchOff.stop()
            case .start(let id, let session, let takesAnyAnswer):
                let transfer = LiveTransfer(id, total: nil, takesAnyAnswer: takesAnyAnswer) {
                    [feed] event in feed.report(event, of: session)
                }
                live[id] = transfer
                command.yield(.run(id, transfer))
                var event = SessionEvent(.changed, time: .now)
                event.task = id
                event.state = .running
                distribute(event, session)
            }
        }
    }

    /// Sets the timer to the next date at which a task or session changes by time alone.
    func setTimer() {
        var dates = [state.nextDate(at: .now)]
        if !unrecorded.isEmpty || !unadmitted.isEmpty {
            dates.append(.now + TransferState.diskWait)
        }
        timer.set(dates.compactMap(\.self).min())
    }

    /// Starts nothing until there is space again.
    func holdForSpace() { state.holdForSpace(free: freeSpace, at: .now) }

    private var freeSpace: ByteCount {
        // What cannot be told is found out by writing.
        (try? store.root.freeSpace().bytes).map { ByteCount($0) } ?? state.configuration.reserve
    }
}

/// The ends of attempts, and of what else writes to the files of a task.
extension Broker {
    /// Ends an attempt of a task, if one runs, and returns once nothing more is written by it.
    ///
    /// Its outcome does not count. Content that is being given its place gets it before this returns.
    func halt(_ id: Int64) async {
        guard !hasAbandonedHalts else { return }
        if state.halt(id) {
            live[id]?.switchOff.stop()
        } else if !state.placing.contains(id) {
            return
        }
        await withCheckedContinuation { halting[id, default: []].append($0) }
    }

    /// Ends a task's attempt, if one runs, and keeps what it has done.
    func stop(_ id: Int64) async {
        let transfer = live[id]
        await halt(id)
        if let transfer { state.note(transfer.current.report(ended: .now), of: id) }
    }

    /// Lets nobody wait any more for attempts that were never begun: the daemon ends.
    func abandonHalts() {
        hasAbandonedHalts = true
        for id in Array(halting.keys) { _ = endAttempt(of: id) }
    }

    /// Notes that an attempt is over; returns whether what it came to counts.
    func endAttempt(of id: Int64) -> Bool {
        let counts = state.endAttempt(of: id)
        endHandle(of: id)
        return counts
    }

    /// Notes that content has its place, or cannot be given it.
    func endPlacing(of id: Int64) {
        state.placing.remove(id)
        resumeHalts(of: id)
    }

    /// Resumes the calls that wait for a task which nothing writes to any more.
    func resumeHalts(of id: Int64) {
        guard !state.attempts.contains(id), !state.placing.contains(id) else { return }
        for continuation in halting.removeValue(forKey: id) ?? [] { continuation.resume() }
    }

    /// Waits until the earlier changes of a task have ended; ``endChange(of:)`` ends this one.
    ///
    /// A change reads the task from the journal and writes all of it: of two at once, one would undo the other.
    func beginChange(of id: Int64) async {
        guard changes[id] != nil else {
            changes[id] = []
            return
        }
        await withCheckedContinuation { changes[id]?.append($0) }
    }

    /// Ends a change of a task, and lets the next one begin.
    func endChange(of id: Int64) {
        guard changes[id]?.isEmpty ?? true else { return changes[id]?.removeFirst().resume() ?? () }
        changes[id] = nil
    }
}

extension Broker {
    /// Delivers events of running transfers, until the task is cancelled.
    func relay() async {
        for await _ in feed.progressWakes { tellProgress() }
    }

    /// Delivers what running transfers have reported until now.
    ///
    /// An attempt that ends has this called before: whatever is told later of its task, by the next attempt or by the
    /// task's end, would otherwise be followed by how far this one had come.
    func tellProgress() {
        for (event, session) in feed.takeProgress() {
            guard let task = event.task, live[task] != nil else { continue }
            distribute(event, session)
        }
    }

    /// Tells the clients of a session, and watchers, of an event that is not kept.
    func distribute(_ event: SessionEvent, _ session: Int64) {
        guard let record = state.sessions[session]?.record else { return }
        feed.send(event, of: record)
    }

    /// Tells why a task waits, if it does.
    func tellHolds(of id: Int64) {
        guard let session = state.scheduler.items[id]?.session, feed.hasListeners(of: session)
        else { return }
        let event = state.change(of: id, at: .now)
        if event.state == .waiting { distribute(event, session) }
    }

    /// Tells of everything that waits, because the reasons have changed.
    private func tellAll() {
        // Clients of long lists ask when they want to know.
        for id in state.scheduler.items.keys.sorted().prefix(1000) {
            guard let session = state.scheduler.items[id]?.session,
                feed.hasListeners(of: session)
            else { continue }
            distribute(state.change(of: id, at: .now), session)
        }
    }

    /// What the daemon says of itself.
    func status(_ caller: Caller, _ version: String) -> ServiceStatus {
        ServiceStatus(
            version: version,
            process: Int(ProcessInfo.processInfo.processIdentifier),
            user: caller.user,
            unfinishedTasks: state.sessions(caller).reduce(0) { $0 + $1.unfinished },
            conditions: state.scheduler.conditions.texts,
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

import DequeModule
import FoundationEssentials
import Logging
import StageConditions
import StageControl
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Coordinates journal, scheduler and clients: reads the journal, feeds events to ``TransferState``, and performs its
/// decisions.
///
/// All decisions are made by ``TransferState``. Everything promised to a client is in the ``Journal`` before the
/// client receives the promise. The coordinator emits a ``Command`` for each attempt and handler to start; the receiver of the
/// command calls back with the result.
actor TransferCoordinator {
    /// Work that the coordinator wants started.
    enum Command: Sendable {
        /// Run an attempt of a task.
        case run(Int64, LiveTransfer)
        /// Start a handler.
        case launch(HandlerLaunch)
    }

    /// Ends of tasks that are to be recorded.
    struct Ending {
        var outcomes: [(id: Int64, event: SessionEvent)]
        var resumeData: ResumeData?
        /// Name of the part file or upload copy to remove afterwards.
        var unneededFile: String?
    }

    /// Subject of changes that follow one another.
    enum ChangeSubject: Hashable {
        case task(Int64)
        /// Staging job, by the creation of its stagings.
        case stagingJob(SessionRecord.JobKey)
        /// Session that is being removed.
        case removal(Int64)
        /// Partial file of a task that has no attempt.
        case partialFile(Int64)
    }

    let files: TransferFiles
    let journal: Journal
    let committer: DownloadCommitter
    let storage: UserStorage
    let logger: Logger
    /// Set if a program that stages packs is installed.
    let hasWorkers: Bool
    let boot = BootID.current
    /// Time at which this daemon has started.
    let startTime = Date.now
    nonisolated let commands: AsyncStream<Command>
    let commandQueue: AsyncStream<Command>.Continuation
    /// Upload resources that servers are asked to delete, as soon as each is sent here.
    nonisolated let deletions: AsyncStream<ResourceDeletion>
    let startedDeletions: AsyncStream<ResourceDeletion>.Continuation
    var deletionQueue = DeletionQueue()
    nonisolated let feed = EventFeed()
    nonisolated let timer: WakeTimer
    nonisolated let alarms: AsyncStream<Void>
    private nonisolated let alarm: AsyncStream<Void>.Continuation

    /// State that all decisions are based on.
    var state: TransferState
    /// Running attempts; its keys are ``TransferState/attempts``.
    var live: [Int64: LiveTransfer] = [:]
    /// Handlers that were started, by session.
    var launches: [Int64: HandlerLaunch] = [:]
    /// Checks and file copies for tasks that are about to be created.
    lazy var preparation = TaskPreparation(
        journal: journal,
        files: files,
        storage: storage,
        releaseMoved: { [weak self] in await self?.releaseMoved(of: $0) ?? false },
        release: { [weak self] in await self?.release($0) }
    )
    /// Continuations of calls that wait until no attempt or commit writes to a task's files, by task.
    private var abortWaiters: [Int64: [CheckedContinuation<Void, Never>]] = [:]
    /// Continuations of changes that wait for an earlier change of the same subject, by subject.
    private var changes: [ChangeSubject: [CheckedContinuation<Void, Never>]] = [:]
    /// Ends of tasks that the journal could not record yet.
    var unrecorded: [Ending] = []
    /// Unfinished tasks that could not be read from the journal yet.
    var unscheduled: Set<Int64> = []
    /// Detects that the clock was set.
    var clock = ClockWatch(.now)
    /// Change of the clock in seconds by which dates in the journal are still to be moved.
    var unrecordedClockChange = 0.0
    /// Date of the next attempt to write and read what the journal has refused; `nil` if there is nothing.
    var retryDate: Date?
    /// Set once the daemon is shutting down and no attempt runs any more.
    private var hasAbandonedAborts = false
    private(set) var hasStarted = false
    /// Earliest time of the next run of the scheduler.
    var nextSchedulerRun = ContinuousClock.now
    private(set) var isSchedulerDelayed = false
    /// Date of the timer.
    var alarmSchedule = AlarmSchedule()

    init(
        files: TransferFiles,
        journal: Journal,
        configuration: DaemonConfiguration,
        hasWorkers: Bool,
        logger: Logger
    ) {
        self.files = files
        self.hasWorkers = hasWorkers
        (self.journal, self.logger) = (journal, logger)
        committer = DownloadCommitter(files: files, journal: journal, logger: logger)
        storage = UserStorage(root: files.root, configuration: configuration)
        state = TransferState(configuration: configuration, at: .now)
        (commands, commandQueue) = AsyncStream.makeStream()
        (deletions, startedDeletions) = AsyncStream.makeStream()
        let (alarms, alarm) = AsyncStream.makeStream(
            of: Void.self,
            bufferingPolicy: .bufferingNewest(1)
        )
        self.alarms = alarms
        self.alarm = alarm
        timer = WakeTimer { alarm.yield() }
    }

    /// Applies a changed configuration.
    func configure(_ configuration: DaemonConfiguration) async {
        storage.configure(configuration)
        state.configuration = configuration
        await applyUpdateConditions()
        runScheduler()
    }

    /// Applies a change of network or power conditions.
    func setConditions(_ conditions: Conditions) {
        guard state.setConditions(conditions, at: readClock()) else { return }
        logger.info("Conditions changed", metadata: ["conditions": "\(conditions)"])
        sendAllPendingReasons()
        runScheduler()
    }

    /// Retries tasks whose hosts could not be reached, because a link, an address or a route has appeared.
    func networkChanged() {
        state.networkChanged(at: readClock())
        logger.info("The network has changed")
        sendAllPendingReasons()
        runScheduler()
    }

    /// Starts scheduling and launching, once the initial network and power conditions are known.
    func start(_ conditions: Conditions) async {
        state.scheduler.conditions = conditions
        hasStarted = true
        for id in state.sessions.keys.sorted() { await launchIfNeeded(id) }
        runScheduler()
        sendAllPendingReasons()
    }

    /// Runs the scheduler once, which decides which attempts start and stop.
    ///
    /// A user with tens of thousands of hosts makes a run slow. Runs therefore take at most a tenth of the time: the next
    /// one is delayed, and requests are answered in between.
    func runScheduler() {
        guard hasStarted, !isSchedulerDelayed else { return }
        guard ContinuousClock.now >= nextSchedulerRun else {
            isSchedulerDelayed = true
            Task {
                // This sleep is never cancelled; a daemon that is shutting down does not run the scheduler.
                try? await Task.sleep(until: nextSchedulerRun, clock: .continuous)
                isSchedulerDelayed = false
                self.runScheduler()
            }
            return
        }
        // Hours in suspension during a run would delay the next one by days.
        let start = SuspendingClock.now
        defer {
            let spent = SuspendingClock.now - start
            if spent > .milliseconds(5) { nextSchedulerRun = .now + spent * 9 }
        }
        if alarmSchedule.schedulerRuns() { alarm.yield() }
        let now = readClock()
        checkSpace()
        perform(state.runScheduler(at: now))
        setTimer()
    }

    /// Performs the effects that ``TransferState`` has decided on.
    func perform(_ effects: [TransferState.Effect]) {
        var waiting: [Int64] = []
        for effect in effects {
            switch effect {
            case .yield(let id): live[id]?.stop()
            case .stop(let id): live[id]?.stopSwitch.stop()
            case .wait(let id): waiting.append(id)
            case .fail(let id, let failure): Task { await failStalled(id, with: failure) }
            case .start(let id, let session, let acceptsAnyStatus):
                let user = state.sessions[session]?.record.user
                let transfer = LiveTransfer(
                    id,
                    of: user,
                    acceptsAnyStatus: acceptsAnyStatus,
                    received: state.histories[id]?.received ?? .zero,
                    isStaging: state.scheduler.items[id]?.isConnected == false
                ) { [feed] event in feed.report(event, of: session, user: user) }
                live[id] = transfer
                commandQueue.yield(.run(id, transfer))
                var event = SessionEvent(.changed, time: .now)
                (event.task, event.state, event.pendingReasons) = (id, .running, [])
                distribute(event, to: session)
            }
        }
        sendPendingReasons(of: waiting)
    }
}

/// End of attempts and commits.
extension TransferCoordinator {
    /// Aborts a task's attempt, if one runs, and returns once nothing writes to the task's files any more.
    ///
    /// Discards the result of the attempt. If the download is being committed, waits for the commit instead.
    func abort(_ id: Int64) async {
        guard !hasAbandonedAborts else { return }
        if state.abort(id) {
            live[id]?.stopSwitch.stop()
        } else if !state.committing.contains(id) {
            return
        }
        await withCheckedContinuation { abortWaiters[id, default: []].append($0) }
    }

    /// Aborts a task's attempt, if one runs, and keeps its report for the task's history.
    func stopAttempt(of id: Int64) async {
        let transfer = live[id]
        await abort(id)
        if let transfer { state.note(transfer.current.report(ended: readClock()), of: id) }
    }

    /// Resumes the callers of ``abort(_:)`` at shutdown: the attempts that they wait for were scheduled, but will not run, and so
    /// will not end.
    func abandonAborts() {
        hasAbandonedAborts = true
        for id in Array(abortWaiters.keys) { _ = endAttempt(of: id) }
    }

    /// Marks an attempt as ended; returns whether its result counts.
    func endAttempt(of id: Int64) -> Bool {
        let counts = state.endAttempt(of: id)
        endHandle(of: id)
        return counts
    }

    /// Marks a download as committed, or its commit as failed.
    func endCommit(of id: Int64) {
        state.committing.remove(id)
        resumeAbortWaiters(of: id)
    }

    /// Resumes the calls that wait for a task once nothing writes to its files any more.
    func resumeAbortWaiters(of id: Int64) {
        guard !state.attempts.contains(id), !state.committing.contains(id) else { return }
        for continuation in abortWaiters.removeValue(forKey: id) ?? [] { continuation.resume() }
    }

    /// Waits until all earlier changes of a subject have ended; ``endChange(of:)`` ends this one.
    ///
    /// A change reads a task from the journal and writes it back, so concurrent changes would overwrite each other. What
    /// stagings replace depends on whether the journal accepts or refuses the ones before. A session is removed once.
    func beginChange(of subject: ChangeSubject) async {
        guard changes[subject] != nil else {
            changes[subject] = []
            return
        }
        await withCheckedContinuation { changes[subject]?.append($0) }
    }

    /// Returns whether a change of a subject is in progress.
    func isChanging(_ subject: ChangeSubject) -> Bool { changes[subject] != nil }

    /// Ends a change of a subject, and lets the next one begin.
    func endChange(of subject: ChangeSubject) {
        guard changes[subject]?.isEmpty ?? true else {
            return changes[subject]?.removeFirst().resume() ?? ()
        }
        changes[subject] = nil
    }
}

extension TransferCoordinator {
    /// Delivers progress events of running transfers, until the task is cancelled.
    func relay() async {
        for await _ in feed.progressWakes { deliverProgress() }
    }

    /// Delivers the progress events that running transfers have queued.
    ///
    /// Called before an attempt is marked as ended, so that no progress event arrives after events of the next
    /// attempt or the end of the task.
    func deliverProgress() {
        for (event, session) in feed.takeProgress() {
            guard let task = event.task, live[task] != nil else { continue }
            distribute(event, to: session)
        }
    }

    /// Sends the pending reasons of a task, if it is waiting.
    func sendPendingReasons(of id: Int64) {
        guard let session = state.session(of: id), feed.hasListeners(of: session) else { return }
        let event = state.change(of: id, at: readClock())
        if event.state == .waiting { distribute(event, to: session) }
    }

    /// Sends the pending reasons of waiting tasks, which may be all those of a user whose host has requested a delay.
    private func sendPendingReasons(of tasks: [Int64]) {
        guard tasks.count > Subscription.limit else {
            for id in tasks { sendPendingReasons(of: id) }
            return
        }
        // Only clients of these tasks: one user must not make those of others read the state of all of theirs.
        feed.noteMissedEvents(of: Set(tasks.compactMap { state.session(of: $0) }))
        if feed.hasWatchers { sendToWatchers(tasks) }
    }

    /// Sends the pending reasons of all tasks after a change of network, power or disk space.
    func sendAllPendingReasons() {
        // Attached clients read the state of their own tasks, however many tasks other users have.
        feed.noteMissedEvents(of: nil)
        if feed.hasWatchers { sendToWatchers(state.scheduler.items.keys.sorted()) }
    }

    /// Sends the pending reasons of at most 1,000 tasks of each user to watchers, which request longer lists.
    private func sendToWatchers(_ tasks: [Int64]) {
        var counts: [UInt32: Int] = [:]
        var isWatched: [Int64: Bool] = [:]
        for id in tasks {
            guard let session = state.session(of: id), isWatched[session] != false,
                let record = state.sessions[session]?.record, counts[record.user, default: 0] < 1000
            else { continue }
            isWatched[session] = isWatched[session] ?? feed.isWatched(record)
            guard isWatched[session] == true else { continue }
            counts[record.user, default: 0] += 1
            feed.sendToWatchers(state.change(of: id, at: readClock()), of: record)
        }
    }

    /// Returns the status of the daemon.
    func status(for client: ClientCredentials, version: String) -> ServiceStatus {
        ServiceStatus(
            version: version,
            process: Int(ProcessInfo.processInfo.processIdentifier),
            user: client.user,
            unfinishedTasks: state.sessions(for: client).reduce(0) { $0 + $1.unfinished },
            conditions: state.scheduler.conditions.texts,
            staged: files.finishedPath(of: 0, user: client.user).removingLastComponent().string,
            libraries: [
                "SQLite": LinkedDatabaseLibrary.version,
                "libcurl": LinkedTransferLibrary.version,
            ]
        )
    }
}

extension Conditions {
    /// Conditions in the words shown to people.
    fileprivate var texts: [String: String] {
        func text(_ value: Bool?) -> String { value.map { $0 ? "yes" : "no" } ?? "unknown" }
        return [
            "connectivity": connectivity.rawValue,
            "metered": text(isExpensive),
            "onBattery": text(isOnBattery),
            "powerSaver": text(isSavingPower),
        ]
    }
}

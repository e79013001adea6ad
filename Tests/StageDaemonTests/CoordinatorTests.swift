import FoundationEssentials
import Logging
import StageConditions
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageDaemon

/// Calls of the coordinator that meet others in progress; attempts go on until the test ends them.
@Suite(.directory)
struct CoordinatorTests {
    /// Root, which may do everything from any process.
    private let client = ClientCredentials(
        identity: UserIdentity(user: 0, group: 0, groups: [0]),
        process: 1
    )

    /// Makes a coordinator with one session, and a download in it unless `isTransient` is set.
    private func makeCoordinator(
        _ identifier: String = "s",
        isTransient: Bool = false
    ) async throws -> (coordinator: TransferCoordinator, session: Int64, task: Int64) {
        let directory = try TemporaryDirectory.required()
        try directory.write([], to: "journal.sqlite", durably: false)
        let logger = Logger(label: "test")
        let journal = try Journal.open(
            directory.path.appending("journal.sqlite"),
            logger: logger
        ) { () throws(DaemonError) in false }
        var configuration = SessionConfiguration()
        configuration.isTransient = isTransient
        let session = try await journal.makeSession(
            identifier,
            of: client.identity,
            configuration: configuration,
            limit: .max
        )
        var task: Int64 = 0
        if !isTransient {
            let request = TransferRequest(token: "t", kind: .download, url: "https://a.example")
            let created = try await journal.create(
                [try NewTask(request, in: configuration, at: .now)],
                in: session.id,
                by: client.user,
                created: .now,
                limit: .max
            )
            task = try #require(created.tasks.first?.record.id)
        }
        let coordinator = TransferCoordinator(
            files: try TransferFiles(directory.path.appending("state")),
            journal: journal,
            configuration: DaemonConfiguration(),
            hasWorkers: true,
            logger: logger
        )
        if !isTransient { _ = try await coordinator.recover(lastChange: nil) }
        return (coordinator, session.id, task)
    }

    private func change(to state: TransferChange.State) -> TransferChange {
        var change = TransferChange()
        change.state = state
        return change
    }

    @Test func aRepeatedRemovalOfASessionWaitsForTheFirst() async throws {
        let (coordinator, _, task) = try await makeCoordinator()
        await coordinator.start(.unknown)
        #expect(await coordinator.isRunning(task))
        let first = Task { try await coordinator.removeSession("s", for: client) }
        try await poll("the attempt is not stopped") { await coordinator.isAborted(task) }
        let second = Task { try await coordinator.removeSession("s", for: client) }
        // The attempt may still write to the files of the task.
        let count = try await pollUntilUnchanged {
            await coordinator.sessions(for: client).count
        }
        #expect(count == 1)
        _ = await coordinator.endAttempt(of: task)
        try await first.value
        try await second.value
        #expect(await coordinator.sessions(for: client).isEmpty)
    }

    static let changes: [(TransferChange.State, TransferTask.State)] = [
        (.cancelled, .cancelled), (.paused, .waiting), (.suspended, .suspended),
    ]

    @Test(arguments: changes)
    func aChangeOfATaskThatCouldNotBeReadIsNotLost(
        _ change: TransferChange.State,
        _ state: TransferTask.State
    ) async throws {
        let (coordinator, _, task) = try await makeCoordinator()
        await coordinator.leaveUnread(task)
        #expect(try await coordinator.task(task, for: client).state == .waiting)
        let answer = try await coordinator.change(task, by: self.change(to: change), for: client)
        #expect(answer.state == state)
        await coordinator.rescheduleAll()
        #expect(try await coordinator.task(task, for: client).state == state)
    }

    @Test func aDownloadIsCancelledWhoseContentCannotBeCommitted() async throws {
        let (coordinator, _, task) = try await makeCoordinator()
        await coordinator.beginCommit(of: task)
        let answer = Task {
            try await coordinator.change(task, by: change(to: .cancelled), for: client)
        }
        try await poll("the change does not begin") { await coordinator.isChanging(.task(task)) }
        // A change that does not wait for the end of the commit ends meanwhile.
        try await Task.sleep(for: .milliseconds(300))
        let path: FilePath = "/staged"
        let error = FileError("rename", path: path, errno: .permissionDenied)
        await coordinator.reschedule(task, after: .file(error))
        await coordinator.endCommit(of: task)
        #expect(try await answer.value.state == .cancelled)
    }

    /// A server that one user chooses may delay any number of that user's tasks again and again.
    @Test func delaysOfManyTasksConcernTheClientOfTheirSessionOnly() async throws {
        let (coordinator, _, task) = try await makeCoordinator()
        _ = try await coordinator.makeSession("t", configuration: .init(), for: client)
        var subscriptions: [Subscription] = []
        for name in ["s", "t"] {
            let subscription = try await coordinator.attach(
                name,
                after: nil,
                launch: nil,
                for: client
            )
            subscriptions.append(subscription)
            #expect(subscription.takeMissedEvents())
        }
        let effects = (0...Subscription.limit).map { _ in TransferState.Effect.wait(task) }
        await coordinator.perform(effects)
        #expect(subscriptions.map { $0.takeMissedEvents() } == [true, false])
    }

    /// With the passed date, the timer would fire again and again.
    @Test func aPassedDateWaitsForTheStartOfTheScheduler() async throws {
        let (coordinator, _, _) = try await makeCoordinator()
        await coordinator.fillDisk(at: .now - 60)
        await coordinator.setTimer()
        var schedule = await coordinator.alarmSchedule
        // The deadline of the task is left.
        #expect(schedule.isHeld && schedule.date ?? .distantPast > .now)
        await coordinator.start(.unknown)
        schedule = await coordinator.alarmSchedule
        #expect(!schedule.isHeld)
    }

    /// Such as a launch that a full disk has prevented: the run of the scheduler ends the wait for the disk.
    @Test func aLaunchThatWaitsForADateOfADelayedSchedulerIsNotLost() async throws {
        let (coordinator, session, _) = try await makeCoordinator()
        await coordinator.start(.unknown)
        await coordinator.delayScheduler(afterEventOf: session)
        let clock = Task { await coordinator.watchClock() }
        defer { clock.cancel() }
        try await poll("the handler is not started") { await coordinator.hasLaunched(session) }
    }

    private struct Progress {
        var started = 0
        var mayEnd = false
        var events: [SessionEvent.Kind] = []
    }

    /// They occupy the eight threads that a user has for calls that wait for a file system.
    @Test func filesThatCannotBeReadDelayNeitherEventsNorTheSearchForFiles() async throws {
        let (coordinator, _, task) = try await makeCoordinator()
        _ = try await coordinator.change(task, by: change(to: .cancelled), for: client)
        let subscription = try await coordinator.attach(
            "s",
            after: nil,
            launch: nil,
            for: client
        )
        let user = client.user
        let progress = ConditionVariable(Progress())
        try await withThrowingDiscardingTaskGroup { group in
            for _ in 0..<8 {
                group.addTask {
                    await withBlockingThread(of: user) {
                        progress.change { $0.started += 1 }
                        progress.wait { $0.mayEnd ? () : nil }
                    }
                }
            }
            // The group waits for its tasks on each exit.
            defer { progress.change { $0.mayEnd = true } }
            try await poll("the work does not start") { progress.withValue { $0.started } == 8 }
            group.addTask {
                _ = await coordinator.releaseMoved(of: user)
                let events = try await coordinator.read(subscription)
                progress.change { $0.events = events.map(\.kind) }
            }
            try await poll("the events are not read") {
                progress.withValue { $0.events.contains(.cancelled) }
            }
        }
    }

    /// A session that never had a client stays: its creator may repeat the request.
    @Test(arguments: [true, false])
    func aSessionThatItsClientHasLeftEndsWithTheRefusalOfItsStaging(
        _ hasLeft: Bool
    ) async throws {
        let (coordinator, session, _) = try await makeCoordinator("job/1", isTransient: true)
        try await coordinator.addSessions()
        let key = await coordinator.jobKey(of: session)
        let job = TransferCoordinator.ChangeSubject.stagingJob(try #require(key))
        await coordinator.beginChange(of: job)
        let answer = Task {
            var request = TransferRequest(token: "t", kind: .staging, url: "org.example.game")
            request.staging = StagingJob()
            request.staging?.application = "org.example.game"
            request.staging?.packs = ["aurora"]
            return try await coordinator.create(NewTasks([request]), in: "job/1", for: client)
        }
        try await poll("the staging does not wait") {
            await coordinator.hasReservedTasks(in: session)
        }
        if hasLeft { await coordinator.removeIfOver(session) }
        var configuration = DaemonConfiguration()
        configuration.tasksPerUser = 0
        await coordinator.configure(configuration)
        await coordinator.endChange(of: job)
        await #expect(throws: ControlRefusal.self) { try await answer.value }
        #expect(await coordinator.sessions(for: client).isEmpty == hasLeft)
    }
}

extension TransferCoordinator {
    fileprivate func isRunning(_ id: Int64) -> Bool { state.attempts.contains(id) }
    fileprivate func isAborted(_ id: Int64) -> Bool { state.aborted.contains(id) }

    fileprivate func hasReservedTasks(in session: Int64) -> Bool {
        state.sessions[session]?.reserved ?? 0 > 0
    }

    fileprivate func jobKey(of session: Int64) -> SessionRecord.JobKey? {
        state.sessions[session]?.record.jobKey
    }

    /// Adds the sessions of the journal; unlike a start of the daemon, keeps empty transient ones.
    fileprivate func addSessions() async throws(DaemonError) {
        for record in try await journal.sessions() {
            state.sessions[record.id] = TransferState.Session(record: record)
        }
    }

    fileprivate func hasLaunched(_ session: Int64) -> Bool { launches[session] != nil }

    /// Simulates a full disk since a date.
    fileprivate func fillDisk(at date: Date) { state.waitForSpace(free: .zero, at: date) }

    /// Delays the scheduler, while the date of the next check of a full disk has passed and a session waits for its handler.
    fileprivate func delayScheduler(afterEventOf session: Int64) {
        nextSchedulerRun = .now + .milliseconds(100)
        runScheduler()
        fillDisk(at: .now - 60)
        state.sessions[session]?.record.configuration.handler = LaunchHandler(command: ["true"])
        state.sessions[session]?.record.last = 1
        state.sessions[session]?.unfinished = 0
        setTimer()
    }

    /// Leaves a task as a removal of its session that failed, with a journal that could not be read.
    fileprivate func leaveUnread(_ id: Int64) {
        state.forget(id, at: .now)
        unscheduled.insert(id)
    }

    fileprivate func beginCommit(of id: Int64) {
        _ = state.unschedule(id)
        state.committing.insert(id)
    }
}

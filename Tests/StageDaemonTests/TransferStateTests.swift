import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageDaemon

struct TransferStateTests {
    private let now = Date(timeIntervalSince1970: 1_800_000_000)
    private let owner = ClientCredentials(
        identity: .init(user: 1, group: 1, groups: [1]),
        process: 1
    )

    /// A state with one session, of the number 1.
    private func state(
        _ change: (inout SessionConfiguration) -> Void = { _ in }
    ) -> TransferState {
        var state = TransferState(configuration: DaemonConfiguration(), at: now)
        state.sessions[1] = TransferState.Session(record: SessionRecord(1, change))
        return state
    }

    /// Adds tasks to the state as the coordinator does after the journal has stored them.
    private func create(_ tasks: [FullTask], in state: inout TransferState) throws {
        try state.reserve(tasks.map(\.request), in: 1)
        state.created(tasks.map { ($0.record, true, $0.request) }, in: 1, reason: nil, at: now)
    }

    /// Completes the attempt of a task.
    private func receive(_ task: FullTask, in state: inout TransferState) {
        #expect(state.endAttempt(of: task.record.id) == true)
        #expect(state.succeed(task, at: now) == true)
    }

    @Test(arguments: 1...100 as ClosedRange<UInt64>)
    func eachTaskEndsOnceInAnyOrderOfEvents(seed: UInt64) {
        var world = TransferStateWorld(seed: seed)
        for _ in 0..<300 where world.faults.isEmpty { world.step() }
        world.finish()
        #expect(world.faults == [])
    }

    // MARK: Content that is the same

    @Test func aTaskForContentThatIsBeingMovedLeadsAlone() throws {
        var state = state()
        let tasks = (1...4).map { FullTask($0, digest: "x") }
        try create([tasks[0]], in: &state)
        #expect(state.runScheduler(at: now).count == 1)
        receive(tasks[0], in: &state)
        // While the content of the first task is being committed, others are added; its end does not change their leader.
        try create(Array(tasks[1...2]), in: &state)
        state.ended([1], events: [], at: now)
        #expect(state.sharing.leader(of: 2) == 2)
        #expect(state.sharing.leader(of: 3) == 2)
        try create([tasks[3]], in: &state)
        #expect(state.runScheduler(at: now) == [.start(2, session: 1, acceptsAnyStatus: false)])
        #expect(state.sharing.followers(of: 2) == [3, 4])
    }

    @Test func contentThatCouldNotBeMovedIsFetchedByOneTaskAgain() throws {
        var state = state()
        let tasks = (1...2).map { FullTask($0, digest: "x") }
        try create(tasks, in: &state)
        _ = state.runScheduler(at: now)
        receive(tasks[0], in: &state)
        #expect(state.followersToServe(by: 1, at: now) == [2])
        #expect(state.serve(2) == true)
        for task in tasks { state.schedule(task.record, request: task.request, at: now) }
        #expect(
            state.runScheduler(at: now) == [.start(1, session: 1, acceptsAnyStatus: false)]
        )
    }

    @Test func whichTaskFetchesContentIsNotWrittenDown() throws {
        var state = state()
        let tasks = (1...2).map { FullTask($0, digest: "x") }
        try create(tasks, in: &state)
        #expect(state.scheduler.items[2]?.blocks == .leader)
        #expect(state.storedBlocks(of: 2) == [])
        // A record of an earlier daemon may contain the leader.
        var record = FullTask(3).record
        record.blocks = [.leader, .client]
        state.schedule(record, at: now)
        #expect(state.scheduler.items[3]?.blocks == .client)
    }

    // MARK: Requests that come at once

    @Test func requestsThatComeAtOnceGetNoMoreTasksThanOneMayHave() throws {
        var state = state { $0.isTransient = true }
        let requests = (1...5).map { FullTask($0).request }
        try state.reserve(requests, in: 1)
        #expect(throws: ControlRefusal.self) { try state.reserve(requests, in: 1) }
        // The session stays for the reserved tasks, although no client is attached.
        #expect(state.isOver(1) == false)
        #expect(state.sessions[1]?.wasOverDuringCreation == true)
        state.endReservation(of: requests, in: 1)
        #expect(state.isOver(1) == true)
        try state.reserve(requests, in: 1)
    }

    @Test func requestsThatComeAtOnceGetNoMoreTasksWithoutRetryThanOneMayHave() throws {
        var state = state()
        let tasks = (1...Int64(RequestLimits.tasksWithoutRetry)).map {
            FullTask($0, failsWithoutRetry: true)
        }
        let requests = tasks.map(\.request)
        let one = [FullTask(2000, failsWithoutRetry: true).request]
        try state.reserve(requests, in: 1)
        #expect(throws: ControlRefusal.self) { try state.reserve(one, in: 1) }
        try state.reserve([FullTask(2001).request], in: 1)
        state.endReservation(of: requests, in: 1)
        // A task that exists counts once.
        try create(Array(tasks.dropLast()), in: &state)
        try state.reserve(one, in: 1)
        #expect(throws: ControlRefusal.self) { try state.reserve(one, in: 1) }
    }

    @Test func requestsThatComeAtOnceGetNoMoreSessionsThanOneMayHave() throws {
        var state = TransferState(configuration: DaemonConfiguration(), at: now)
        var last: TransferState.SessionReservation?
        for number in 0..<RequestLimits.sessionsPerUser {
            last = try state.reserveSession(
                "\(number)",
                configuration: SessionConfiguration(),
                of: 1
            )
        }
        #expect(throws: ControlRefusal.self) {
            try state.reserveSession("more", configuration: SessionConfiguration(), of: 1)
        }
        state.endReservation(try #require(last), record: nil)
        _ = try state.reserveSession("more", configuration: SessionConfiguration(), of: 1)
        var transient = SessionConfiguration()
        transient.isTransient = true
        #expect(
            throws: ControlRefusal(
                .invalid,
                message: "'isTransient' of a session cannot be changed"
            )
        ) {
            try state.reserveSession("0", configuration: transient, of: 1)
        }
    }

    @Test func allUsersTogetherHaveALimitOfSessions() throws {
        var state = TransferState(configuration: DaemonConfiguration(), at: now)
        for number in 0..<RequestLimits.sessions {
            _ = try state.reserveSession(
                "\(number)",
                configuration: SessionConfiguration(),
                of: UInt32(number / RequestLimits.sessionsPerUser)
            )
        }
        let refusal = ControlRefusal(
            .unavailable,
            message: "all users together have too many sessions"
        )
        #expect(throws: refusal) {
            try state.reserveSession("s", configuration: SessionConfiguration(), of: .max)
        }
    }

    /// The journal distinguishes identifiers that are equal for Swift's `==`.
    @Test func identifiersAreComparedByTheirBytes() throws {
        let (composed, decomposed) = ("a\u{e9}/1", "ae\u{301}/2")
        var state = TransferState(configuration: DaemonConfiguration(), at: now)
        for number in 1..<RequestLimits.sessionsPerUser {
            _ = try state.reserveSession(
                "\(number)",
                configuration: SessionConfiguration(),
                of: 1
            )
        }
        let configuration = SessionConfiguration()
        _ = try state.reserveSession(composed, configuration: configuration, of: 1)
        let other = "ae\u{301}/1"
        #expect(throws: ControlRefusal.self) {
            try state.reserveSession(other, configuration: configuration, of: 1)
        }
        for (id, name) in [(1, composed), (2, decomposed)] as [(Int64, String)] {
            let record = SessionRecord(id, identifier: name) { $0.isTransient = true }
            state.sessions[id] = TransferState.Session(record: record)
        }
        #expect(throws: ControlRefusal.self) { try state.session(other, for: owner) }
        #expect(try state.session(composed, for: owner).record.id == 1)
        let found = try #require(state.sessions[2])
        #expect(state.beginReplacement(by: found) == [])
    }

    // MARK: Commits that fail

    /// Returns a state with one task, and its pending reasons after `count` commits of its content failed.
    private func waits(
        after count: Int,
        failuresWith errno: Errno
    ) throws -> (TransferState, [PendingReason]) {
        var state = state()
        let task = FullTask(1)
        try create([task], in: &state)
        _ = state.runScheduler(at: now)
        receive(task, in: &state)
        var reasons: [PendingReason] = []
        for _ in 0..<count {
            state.schedule(task.record, at: now)
            #expect(state.commitFailed(1, with: error(errno), at: now) == nil)
            reasons.append(try #require(state.scheduler.items[1]?.notBefore))
            #expect(state.unschedule(1) == true)
        }
        state.schedule(task.record, at: now)
        return (state, reasons)
    }

    private func error(_ errno: Errno) -> DaemonError {
        .file(FileError("open", path: "/a", errno: errno))
    }

    @Test func aCommitIsRepeatedAfterGrowingDelays() throws {
        let (_, reasons) = try waits(after: 10, failuresWith: .notDirectory)
        let problem = "\(error(.notDirectory))"
        let delays = [15, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600] as [TimeInterval]
        let expected = delays.map { PendingReason(.backoff, until: now + $0, problem: problem) }
        #expect(reasons == expected)
    }

    @Test func aCommitOnAFullDiskIsRepeatedSoon() throws {
        let (_, reasons) = try waits(after: 10, failuresWith: .noSpace)
        let reason = PendingReason(.disk, until: now + TransferState.diskWait)
        #expect(reasons == [PendingReason](repeating: reason, count: 10))
    }

    @Test func aCommitOnAReadOnlyFileSystemIsRepeatedUntilItIsWritable() throws {
        let (_, reasons) = try waits(after: 10, failuresWith: .readOnlyFileSystem)
        let reason = PendingReason(
            .disk,
            until: now + TransferState.diskWait,
            problem: "\(error(.readOnlyFileSystem))"
        )
        #expect(reasons == [PendingReason](repeating: reason, count: 10))
    }

    @Test(arguments: [.invalidArgument, .permissionDenied, .notPermitted] as [Errno])
    func aCommitThatWillNotSucceedEndsItsTask(_ errno: Errno) throws {
        var (state, reasons) = try waits(after: 4, failuresWith: errno)
        #expect(reasons.map(\.kind) == [.backoff, .backoff, .backoff, .backoff])
        let failure = TransferFailure(.storage, reason: "\(error(errno))")
        #expect(state.commitFailed(1, with: error(errno), at: now) == failure)
    }

    // MARK: Launches

    /// State whose session has an event, and the launch to record for it.
    private func launching() throws -> (TransferState, PlannedLaunch) {
        var state = state { $0.handler = LaunchHandler(command: ["/bin/true"]) }
        state.sessions[1]?.record.last = 1
        let planned = state.decideLaunch(of: 1, token: "t", boot: "b", at: now)
        return (state, try #require(planned))
    }

    @Test func aLaunchThatIsOnDiskStarts() throws {
        var (state, planned) = try launching()
        #expect(planned.decided.penalty == 60)
        #expect(state.launchRecorded(planned, isOnDisk: true) == .start)
        #expect(state.decideLaunch(of: 1, token: "u", boot: "b", at: now) == nil)
        #expect(state.launchEnded("t", of: 1) == false)
    }

    @Test func noHandlerStartsForAClientThatHasComeMeanwhile() throws {
        var (state, planned) = try launching()
        _ = try state.attach("s", launch: nil, for: owner, at: now)
        #expect(state.launchRecorded(planned, isOnDisk: true) == .withdraw)
        #expect(state.sessions[1]?.record.launchLimiter.activeToken == nil)
        #expect(state.sessions[1]?.record.launchLimiter.penalty == 0)
        #expect(state.sessions[1]?.record.launchLimiter.failures == 0)
        _ = state.detach(1, at: now)
        #expect(state.decideLaunch(of: 1, token: "u", boot: "b", at: now) != nil)
    }

    @Test func noHandlerStartsForASessionThatIsRemovedMeanwhile() throws {
        var (state, planned) = try launching()
        _ = state.beginRemoval(of: 1)
        _ = state.removed(1, at: now)
        #expect(state.launchRecorded(planned, isOnDisk: true) == .none)
    }

    @Test func aHandlerCountsUntilItEndsEvenWithoutItsSession() throws {
        var state = TransferState(configuration: DaemonConfiguration(), at: now)
        for id in 1...6 as ClosedRange<Int64> {
            var record = SessionRecord(id, identifier: "\(id)") {
                $0.handler = LaunchHandler(command: ["/bin/true"])
            }
            record.last = 1
            state.sessions[id] = TransferState.Session(record: record)
        }
        for id in 1...4 as ClosedRange<Int64> {
            let planned = state.decideLaunch(of: id, token: "\(id)", boot: "b", at: now)
            #expect(state.launchRecorded(try #require(planned), isOnDisk: true) == .start)
        }
        _ = state.beginRemoval(of: 1)
        _ = state.removed(1, at: now)
        #expect(state.decideLaunch(of: 5, token: "5", boot: "b", at: now) == nil)
        // The launched handler has ended.
        #expect(state.launchEnded("1", of: 1) == nil)
        let planned = state.decideLaunch(of: 5, token: "5", boot: "b", at: now)
        _ = state.beginRemoval(of: 5)
        _ = state.removed(5, at: now)
        // A launch that was ordered for a session that is removed meanwhile starts no handler.
        #expect(state.launchRecorded(try #require(planned), isOnDisk: true) == .none)
        #expect(state.decideLaunch(of: 6, token: "6", boot: "b", at: now) != nil)
    }

    @Test func aWorkerCountsUntilItsAttemptEnds() throws {
        var state = state { $0.isTransient = true }
        let tasks = (1...4).map { FullTask($0, host: Scheduler.workerHost) }
        try create(tasks, in: &state)
        func started(_ state: inout TransferState) -> [Int64] {
            state.runScheduler(at: now).compactMap {
                if case .start(let id, _, _) = $0 { id } else { nil }
            }
        }
        #expect(started(&state) == [1, 2])
        // The task is cancelled, and its session forgets it, while the worker is still ending.
        #expect(state.unschedule(1) == true)
        #expect(started(&state) == [])
        state.forget(1, at: now)
        #expect(started(&state) == [])
        _ = state.endAttempt(of: 1)
        #expect(started(&state) == [3])
        // An attempt that has ended before its task is removed no longer counts.
        _ = state.endAttempt(of: 2)
        #expect(state.unschedule(2) == true)
        #expect(started(&state) == [4])
    }

    @Test func aLaunchThatCouldNotBeWrittenDownWasNone() throws {
        var (state, planned) = try launching()
        #expect(state.launchRecorded(planned, isOnDisk: false) == .none)
        #expect(state.sessions[1]?.record.launchLimiter == LaunchLimiter())
    }

    @Test func aClientThatHasComeEndsTheDelayAlsoOfALaunchThatCouldNotBeWrittenDown() throws {
        var (state, planned) = try launching()
        #expect(state.launchRecorded(planned, isOnDisk: true) == .start)
        #expect(state.launchEnded("t", of: 1) == false)
        let later = now + 61
        let second = state.decideLaunch(of: 1, token: "u", boot: "b", at: later)
        planned = try #require(second)
        _ = try state.attach("s", launch: nil, for: owner, at: later)
        #expect(state.launchRecorded(planned, isOnDisk: false) == .none)
        let launchLimiter = state.sessions[1]?.record.launchLimiter
        #expect(launchLimiter?.penalty == 0)
        #expect(launchLimiter?.failures == 0)
        #expect(launchLimiter?.activeToken == nil)
    }

    @Test func aChallengedTaskThatIsCancelledStartsNoHandler() throws {
        var state = state { $0.handler = LaunchHandler(command: ["/bin/true"]) }
        let tasks = [FullTask(1), FullTask(2)]
        try create(tasks, in: &state)
        _ = state.runScheduler(at: now)
        #expect(state.endAttempt(of: 1) == true)
        let judgement = state.judge(.challenge, of: tasks[0], report: AttemptReport(), at: now)
        #expect(judgement == .record(SessionEvent(.challenged, time: now)))
        state.sessions[1]?.record.last = 1
        #expect(state.launchable == [])
        state.challengeRecorded(of: 1)
        #expect(state.launchable == [1])
        #expect(state.unschedule(1) == true)
        state.ended([1], events: [(1, SessionEvent(.cancelled, time: now))], at: now)
        #expect(state.launchable == [])
    }

    // MARK: Waits

    @Test func bytesThatGoWhileATaskIsJudgedEndItsWait() throws {
        var state = state()
        let task = FullTask(1)
        try create([task], in: &state)
        _ = state.runScheduler(at: now)
        #expect(state.endAttempt(of: 1) == true)
        let hold = PendingReason(.quota, until: now + TransferState.quotaWait)
        #expect(
            state.judge(.retry(hold), of: task, report: AttemptReport(), at: now) == .waitForQuota
        )
        #expect(state.waitsForQuota(1))
        state.endQuotaWaits(of: 1, at: now)
        #expect(!state.waitsForQuota(1))
        #expect(state.runScheduler(at: now) == [.start(1, session: 1, acceptsAnyStatus: false)])
    }

    @Test func aTaskThatCouldNotBeGivenUpIsGivenUpLater() throws {
        var state = state()
        try create([FullTask(1, deadline: now + 10)], in: &state)
        #expect(state.expired(at: now + 9) == [])
        #expect(state.expired(at: now + 10) == [1])
        state.postponeExpiry(of: 1, at: now + 10)
        #expect(state.expired(at: now + 10) == [])
        #expect(state.expired(at: now + 10 + TransferState.diskWait) == [1])
        #expect(state.unschedule(1) == true)
        #expect(state.unschedule(1) == false)
    }

    /// The transfer engine keeps its initial limits, and transfers beyond them would not run.
    @Test func limitsFollowTheConfigurationUpToThoseOfTheStart() throws {
        var configuration = DaemonConfiguration()
        (configuration.connections, configuration.connectionsPerHost) = (3, 2)
        var state = TransferState(configuration: configuration, at: now)
        state.sessions[1] = TransferState.Session(record: SessionRecord(1))
        (configuration.connections, configuration.connectionsPerHost) = (9, 9)
        state.configuration = configuration
        try create((1...9).map { FullTask($0, host: $0 > 4 ? "b" : "a") }, in: &state)
        #expect(state.runScheduler(at: now).count == 3)
        #expect(state.scheduler.limits.perHost == 2)
        (configuration.connections, configuration.connectionsPerHost) = (2, 1)
        state.configuration = configuration
        #expect(state.scheduler.limits.total == 2)
        #expect(state.scheduler.limits.perHost == 1)
    }

    @Test func aHaltedAttemptCountsNoMore() throws {
        var state = state()
        let task = FullTask(1)
        try create([task], in: &state)
        #expect(state.abort(1) == false)
        _ = state.runScheduler(at: now)
        #expect(state.abort(1) == true)
        guard case .none = state.begin(1, task: task, used: 0, at: now) else {
            Issue.record("a halted attempt begins")
            return
        }
        #expect(!state.attempts.contains(1))
    }

    /// Ends the attempt of a task with a failure, after which the task must wait for an hour.
    private func fail(
        _ task: FullTask,
        begun: Date,
        isUnreachable: Bool = true,
        in state: inout TransferState
    ) {
        var report = AttemptReport()
        report.started = begun
        report.isUnreachable = isUnreachable
        #expect(state.endAttempt(of: task.record.id) == true)
        state.note(report, of: task.record.id)
        let verdict = TransferVerdict.retry(PendingReason(.backoff, until: now + 3600))
        #expect(state.judge(verdict, of: task, report: report, at: now + 2) == .wait)
    }

    @Test func aChangeOfTheNetworkEndsTheDelaysOfHostsThatWereNotReachedOnce() throws {
        var state = state()
        let (lost, refused) = (FullTask(1, host: "a"), FullTask(2, host: "b"))
        try create([lost, refused], in: &state)
        #expect(state.runScheduler(at: now).count == 2)
        fail(lost, begun: now, in: &state)
        fail(refused, begun: now, isUnreachable: false, in: &state)
        state.networkChanged(at: now + 1)
        let wait = PendingReason(.backoff, until: now + 3600)
        #expect(state.pendingReasons(of: 1, at: now + 1) == [PendingReason(.slot)])
        #expect(state.pendingReasons(of: 2, at: now + 1) == [wait])
        #expect(state.runScheduler(at: now + 1).count == 1)
        fail(lost, begun: now + 1, in: &state)
        #expect(state.pendingReasons(of: 1, at: now + 2) == [wait])
    }

    @Test func anAttemptFromBeforeAChangeOfTheNetworkIsRepeatedAtOnce() throws {
        var state = state()
        let (lost, refused) = (FullTask(1, host: "a"), FullTask(2, host: "b"))
        try create([lost, refused], in: &state)
        #expect(state.runScheduler(at: now).count == 2)
        state.networkChanged(at: now + 1)
        fail(lost, begun: now, in: &state)
        fail(refused, begun: now, isUnreachable: false, in: &state)
        #expect(state.pendingReasons(of: 1, at: now + 2) == [PendingReason(.slot)])
        let wait = PendingReason(.backoff, until: now + 3600)
        #expect(state.pendingReasons(of: 2, at: now + 2) == [wait])
    }

    @Test func aDiskThatCannotBeWrittenIsNamedWithItsError() throws {
        var state = state()
        try create([FullTask(1)], in: &state)
        let error = "cannot write '/x': Read-only file system"
        state.waitForSpace(free: .mebibytes(200), problem: error, at: now)
        let until = now + TransferState.diskWait
        #expect(
            state.pendingReasons(of: 1, at: now)
                == [PendingReason(.disk, until: until, problem: error)]
        )
        state.waitForSpace(free: .zero, at: now)
        #expect(state.pendingReasons(of: 1, at: now) == [PendingReason(.disk, until: until)])
    }

    @Test func aChallengeThatCannotBeRecordedIsNamedWithTheError() throws {
        let path = FilePath("/journal.sqlite")
        let full = DaemonError.file(FileError("write", path: path, errno: .noSpace))
        let unusable = DaemonError.journal(path, "disk I/O error")
        let rows: [(DaemonError, String?)] = [(full, nil), (unusable, "\(unusable)")]
        for (error, problem) in rows {
            var state = state()
            let task = FullTask(1)
            try create([task], in: &state)
            _ = state.runScheduler(at: now)
            #expect(state.endAttempt(of: 1) == true)
            let report = AttemptReport()
            guard case .record = state.judge(.challenge, of: task, report: report, at: now) else {
                Issue.record("the challenge is not to be recorded")
                return
            }
            state.challengeNotRecorded(of: 1, after: error, at: now)
            let until = now + TransferState.diskWait
            let reason = PendingReason(.disk, until: until, problem: problem)
            #expect(state.pendingReasons(of: 1, at: now) == [reason])
        }
    }

    @Test func aStagingWaitsForTheFullDiskOfItsContainer() throws {
        var state = state()
        let task = FullTask(1, host: Scheduler.workerHost)
        try create([task], in: &state)
        _ = state.runScheduler(at: now)
        _ = state.endAttempt(of: 1)
        let failure = TransferFailure(.storage, reason: "not enough space")
        #expect(state.judge(StagingEnd(failure, pendingReason: .disk), of: task, at: now) == .wait)
        let reasons = [PendingReason(.disk, until: now + 120)]
        #expect(state.pendingReasons(of: 1, at: now) == reasons)
        let error = "cannot write '/x': Read-only file system"
        state.waitForSpace(free: .mebibytes(200), problem: error, at: now)
        #expect(state.pendingReasons(of: 1, at: now) == reasons)
    }

    @Test(arguments: [59, 60] as [Double])
    func onlyADelayThatLastsFailsATaskThatDoesNotWait(date: Double) throws {
        var state = state()
        var task = FullTask(1, failsWithoutRetry: true)
        task.record.earliest = now + date
        state.scheduler.addHostDelay(of: "a", user: 1, until: now + 60, at: now)
        try create([task], in: &state)
        _ = state.runScheduler(at: now)
        let failure = TransferFailure(.unreachable, reason: "the server has requested a delay")
        let expected: [TransferState.Effect] =
            date < 60
            ? [.fail(1, failure)] : [.start(1, session: 1, acceptsAnyStatus: false)]
        #expect(state.runScheduler(at: now + date) == expected)
    }

    @Test func fullSpaceIsLookedForAgainUntilThereIsMore() {
        var state = state()
        state.waitForSpace(free: .mebibytes(2), at: now)
        #expect(!state.isSpaceDue(at: now + 14))
        #expect(state.isSpaceDue(at: now + 15))
        state.checkSpace(free: .mebibytes(2), at: now + 15)
        #expect(state.nextDates(at: now).first == now + 30)
        #expect(state.endDiskWait(at: now + 29) == false)
        state.checkSpace(free: .mebibytes(3), at: now + 30)
        #expect(state.nextDates(at: now).first == now + 45)
        #expect(state.endDiskWait(at: now + 45) == true)
        #expect(state.nextDates(at: now).first == nil)
    }

    @Test func theWaitForADiskThatStaysReadOnlyBeginsOnce() {
        var state = state()
        let free = state.configuration.reserve
        let error = "cannot write '/x': Read-only file system"
        #expect(state.waitForSpace(free: free, problem: error, at: now) == true)
        var date = now
        for _ in 0..<5 {
            date += TransferState.diskWait
            state.checkSpace(free: free, at: date)
            // The next attempt may start, and fails.
            #expect(state.scheduler.fullUntil == nil)
            #expect(state.endDiskWait(at: date) == false)
            #expect(state.waitForSpace(free: free, problem: error, at: date) == false)
        }
        _ = state.runScheduler(at: date + 15)
        #expect(state.endDiskWait(at: date + 29) == false)
        #expect(state.nextDates(at: date + 29).first == date + 30)
        #expect(state.endDiskWait(at: date + 30) == true)
        #expect(state.endDiskWait(at: date + 60) == false)
        #expect(state.waitForSpace(free: free, problem: error, at: date + 60) == true)
    }

    @Test func theWaitForADiskLastsWhileTheEndOfATaskIsNotRecorded() {
        var state = state()
        state.waitForSpace(free: .zero, at: now)
        state.unrecorded = [1]
        _ = state.runScheduler(at: now + 15)
        #expect(state.endDiskWait(at: now + 60) == false)
        // Otherwise the timer would fire at once, repeatedly.
        #expect(state.nextDates(at: now + 60).first == nil)
        state.unrecorded = []
        #expect(state.endDiskWait(at: now + 60) == true)
    }
}

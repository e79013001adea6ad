import FoundationEssentials
import Glibc
import Logging
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageDaemon

/// Changes of the wall clock while tasks wait.
struct ClockTests {
    private static let start = Date(timeIntervalSince1970: 1_800_000_000)
    private var start: Date { Self.start }
    /// A machine without a battery-backed clock sets its clock after the start, and a clock may be set back.
    static let changes = [50.0 * 365 * 86_400, -7200.0]

    private func item(until: Date? = nil) -> Scheduler.Item {
        var item = Scheduler.Item(
            user: 1,
            session: 1,
            host: "a",
            sessionLimit: 6,
            priority: 50,
            constraints: []
        )
        item.notBefore = until.map { PendingReason(.backoff, until: $0) }
        return item
    }

    @Test func onlyADiscontinuousChangeCounts() {
        var watch = ClockWatch(ClockReading(date: start, sinceBoot: 100))
        // An hour of running or of suspension passes on both clocks.
        #expect(watch.change(at: ClockReading(date: start + 3600, sinceBoot: 3700)) == nil)
        #expect(watch.change(at: ClockReading(date: start + 3604, sinceBoot: 3700)) == nil)
        // Small changes add up.
        #expect(watch.change(at: ClockReading(date: start + 3609, sinceBoot: 3701)) == 8)
        #expect(watch.change(at: ClockReading(date: start + 3610, sinceBoot: 3702)) == nil)
        #expect(watch.change(at: ClockReading(date: start - 3592, sinceBoot: 3700)) == -7200)
    }

    @Test(arguments: changes) func delaysKeepTheirLength(change: Double) {
        var scheduler = Scheduler()
        scheduler.add(1, as: item(until: start + 60), at: start)
        scheduler.clockChanged(by: change)
        #expect(scheduler.decide(at: start + change + 59) == Scheduler.Decision())
        #expect(scheduler.nextDeadline == start + change + 60)
        #expect(
            scheduler.pendingReasons(of: 1, at: start + change)
                == [PendingReason(.backoff, until: start + change + 60)]
        )
        #expect(scheduler.decide(at: start + change + 60).start == [1])
    }

    @Test(arguments: changes) func aFullDiskIsLookedAtAfterTheUsualTime(change: Double) {
        var state = TransferState(configuration: DaemonConfiguration(), at: start)
        state.waitForSpace(free: .zero, at: start)
        state.clockChanged(by: change)
        #expect(!state.isSpaceDue(at: start + change + TransferState.diskWait - 1))
        #expect(state.isSpaceDue(at: start + change + TransferState.diskWait))
        _ = state.runScheduler(at: start + change + TransferState.diskWait)
        #expect(
            state.nextDates(at: start + change).first == start + change + 2 * TransferState.diskWait
        )
        let isDue = [86_400, 86_401].map { state.isResumeDataRemovalDue(at: start + change + $0) }
        #expect(isDue == [false, true])
    }

    @Test(arguments: changes) func timeSlicesKeepTheirLength(change: Double) {
        var scheduler = Scheduler(limits: .init(total: 1, perHost: 6, slice: 300))
        scheduler.add(1, as: item(), at: start)
        #expect(scheduler.decide(at: start).start == [1])
        let other = Scheduler.Item(
            user: 2,
            session: 2,
            host: "a",
            sessionLimit: 6,
            priority: 50,
            constraints: []
        )
        scheduler.add(2, as: other, at: start)
        #expect(scheduler.decide(at: start) == Scheduler.Decision())
        scheduler.clockChanged(by: change)
        #expect(scheduler.decide(at: start + change + 299) == Scheduler.Decision())
        #expect(scheduler.decide(at: start + change + 300) == Scheduler.Decision(stop: [1]))
    }

    @Test(arguments: changes) func tasksKeepTheTimeThatIsLeft(change: Double) throws {
        var state = TransferState(configuration: DaemonConfiguration(), at: start)
        state.sessions[1] = TransferState.Session(record: SessionRecord(1))
        let task = FullTask(1, deadline: start + 7 * 86_400)
        try state.reserve([task.request], in: 1)
        state.created([(task.record, true, task.request)], in: 1, reason: nil, at: start)
        state.clockChanged(by: change)
        #expect(state.expired(at: start + change + 7 * 86_400 - 1) == [])
        #expect(state.expired(at: start + change + 7 * 86_400) == [1])
    }
}

/// The dates in the journal when the wall clock is set.
@Suite(.directory, .daemon, .server)
struct JournalClockTests {
    @Test func theDatesOfUnfinishedTasksMove() async throws {
        let directory = try TemporaryDirectory.required()
        try directory.write([], to: "journal.sqlite", durably: false)
        let path = directory.path.appending("journal.sqlite")
        let journal = try Journal.open(path, logger: Logger(label: "test")) {
            () throws(DaemonError) in false
        }
        let session = try await journal.makeSession(
            "s",
            of: UserIdentity(user: 1, group: 1, groups: []),
            configuration: SessionConfiguration(),
            limit: .max
        )
        let now = Date(timeIntervalSince1970: 1_800_000_000)
        var request = TransferRequest(token: "a", kind: .download, url: "https://a.example")
        request.earliestBegin = now + 60
        var other = request
        (other.token, other.earliestBegin) = ("b", nil)
        let tasks = try [request, other].map {
            try NewTask($0, in: SessionConfiguration(), at: now)
        }
        _ = try await journal.create(tasks, in: session.id, by: 1, created: now, limit: .max)
        try await journal.moveDates(by: -7200)
        let records = try await journal.unfinishedTasks().sorted { $0.id < $1.id }
        #expect(records.map(\.earliest) == [now - 7140, nil])
        #expect(records.map(\.deadline) == tasks.map { $0.deadline - 7200 })
    }

    /// The machine starts with a clock that is behind, so the earliest date of the task would be hours away.
    @Test func aDaemonThatStartsWithAClockThatIsBehindMovesItsDates() async throws {
        let daemon = try DaemonProcess.required()
        let server = TestServer.current
        server.answer("/a", with: .content([1, 2, 3]))
        try await daemon.start()
        try await daemon.makeSession()
        let id = try await daemon.download(server.url("/a")) { $0.earliestBegin = .now + 3600 }
        try await daemon.wait(for: [.earliestBegin], of: id)
        try await daemon.kill()
        let path = daemon.state.appending("journal.sqlite-wal")
        // The record's last change seems to be two hours in the future.
        try File.open(reading: path).setModified(Int64(Date.now.timeIntervalSince1970) + 7200)
        try await daemon.start()
        #expect(try await daemon.outcomes().map(\.gist) == ["1 completed of \(id)"])
        #expect(try daemon.said().contains("The clock is behind the journal"))
    }
}

import FoundationEssentials
import StageControl
import Testing

@testable import StageDaemon

/// Decisions about tasks that are promoted by the request which creates them.
struct PromotedTaskTests {
    private let now = Date(timeIntervalSince1970: 1_800_000_000)

    @Test func neitherDelayNorConditionAppliesToAPromotedTask() throws {
        var session = SessionRecord(1) { $0.isDiscretionary = true }
        let decision = session.launchLimiter.decide(
            token: "l",
            version: nil,
            boot: "b",
            policy: LaunchLimiter.Policy(),
            at: now
        )
        #expect(decision == .launch)
        var promoted = TransferRequest(token: "1", kind: .download, url: "http://a/")
        promoted.earliestBegin = now + 10
        promoted.priority = 0
        var usual = promoted
        usual.token = "2"
        promoted.isPromoted = true
        let state = TransferState(configuration: DaemonConfiguration(), at: now)
        let both = try state.newTasks(
            NewTasks([promoted, usual], launch: "l"),
            in: session,
            fractions: [1, 1],
            at: now
        )
        let constraints: [TransferConstraints] = [[], [.unmetered, .power]]
        #expect(both.tasks.map(\.earliest) == [nil, now + 600])
        #expect(both.tasks.map(\.constraints) == constraints)
        #expect(both.tasks.map(\.priority) == [NewTask.promotedPriority, 0])
        #expect(both.reason == .penalty)
        let alone = try state.newTasks(
            NewTasks([promoted], launch: "l"),
            in: session,
            fractions: [1],
            at: now
        )
        #expect(alone.reason == nil)
    }

    /// Requests of an older journal do not tell that the task was promoted.
    @Test(arguments: [0, NewTask.promotedPriority])
    func clientsSeeWhetherATaskOfAnOlderJournalIsPromoted(priority: Int) {
        var state = TransferState(configuration: DaemonConfiguration(), at: now)
        state.sessions[1] = TransferState.Session(record: SessionRecord(1))
        var task = FullTask(1)
        task.record.priority = priority
        state.schedule(task.record, at: now)
        let isPromoted = state.describe(task, attempt: nil, at: now).request.isPromoted
        #expect(isPromoted == (priority == NewTask.promotedPriority ? true : nil))
    }
}

import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import Testing

@testable import StageDaemon

/// Ends of delays because a client attaches.
struct AttachDelayTests {
    private let now = Date(timeIntervalSince1970: 1_800_000_000)
    private let owner = ClientCredentials(
        identity: .init(user: 1, group: 1, groups: [1]),
        process: 1
    )

    /// Starts the attempt of a task, and ends it with a delay of an hour.
    private func fail(_ task: FullTask, in state: inout TransferState, at now: Date) {
        let started = [TransferState.Effect.start(1, session: 1, acceptsAnyStatus: false)]
        #expect(state.runScheduler(at: now) == started)
        _ = state.endAttempt(of: 1)
        let verdict = TransferVerdict.retry(PendingReason(.backoff, until: now + 3600))
        _ = state.judge(verdict, of: task, report: AttemptReport(), at: now)
    }

    @Test func clientsThatAttachInALoopRepeatNoFailedRequestInThatLoop() throws {
        var state = TransferState(configuration: DaemonConfiguration(), at: now)
        state.sessions[1] = TransferState.Session(record: SessionRecord(1))
        let task = FullTask(1)
        try state.reserve([task.request], in: 1)
        state.created([(task.record, true, task.request)], in: 1, reason: nil, at: now)
        fail(task, in: &state, at: now)
        _ = try state.attach("s", launch: nil, for: owner, at: now + 1)
        fail(task, in: &state, at: now + 1)
        let end = now + 1 + TransferState.attachInterval
        for second in [2.0, 3, 9] {
            _ = state.detach(1, at: now + second)
            _ = try state.attach("s", launch: nil, for: owner, at: now + second)
            #expect(state.runScheduler(at: now + second) == [])
            #expect(state.nextDates(at: now + second).first == end)
        }
        fail(task, in: &state, at: end)
        _ = state.detach(1, at: end)
        _ = try state.attach("s", launch: nil, for: owner, at: end)
        #expect(state.runScheduler(at: end) == [])
        fail(task, in: &state, at: end + TransferState.attachInterval)
    }
}

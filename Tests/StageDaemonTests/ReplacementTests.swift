import FoundationEssentials
import StageControl
import Testing

@testable import StageDaemon

/// Stagings that replace earlier ones of the same job.
struct ReplacementTests {
    private let now = Date(timeIntervalSince1970: 1_800_000_000)

    /// Creates a session for a job, with its staging, and replaces earlier ones; all have one number.
    private func createSession(_ id: Int64, in state: inout TransferState) throws -> [Int64] {
        let record = SessionRecord(id, identifier: "job/\(id)") { $0.isTransient = true }
        let session = TransferState.Session(record: record)
        state.sessions[id] = session
        let task = FullTask(id, in: id, host: Scheduler.workerHost)
        try state.reserve([task.request], in: id)
        let replaced = state.beginReplacement(by: session)
        state.created([(task.record, true, task.request)], in: id, reason: nil, at: now)
        return replaced
    }

    @Test func aStagingWaitsForTheEndOfAllThatItReplaces() throws {
        var state = TransferState(configuration: DaemonConfiguration(), at: now)
        #expect(try createSession(1, in: &state) == [])
        #expect(state.runScheduler(at: now) == [.start(1, session: 1, acceptsAnyStatus: false)])
        #expect(try createSession(2, in: &state) == [1])
        #expect(try createSession(3, in: &state) == [2])
        let waiting = [PendingReason(.slot, resource: .workers)]
        #expect(state.pendingReasons(of: 3, at: now) == waiting)
        #expect(state.storedBlocks(of: 3) == [])
        #expect(state.removed(2, at: now) == [])
        #expect(state.runScheduler(at: now) == [])
        // The worker of the first one has ended.
        #expect(state.beginRemoval(of: 1) == [1])
        #expect(state.abort(1) == true)
        state.forget(1, at: now)
        #expect(state.endAttempt(of: 1) == false)
        #expect(state.removed(1, at: now) == [])
        #expect(state.runScheduler(at: now) == [.start(3, session: 3, acceptsAnyStatus: false)])
    }

    /// The second one is cancelled while the worker of the first one is ending.
    @Test func aStagingWaitsForWorkersOfSessionsThatWereBeingRemovedBefore() throws {
        var state = TransferState(configuration: DaemonConfiguration(), at: now)
        _ = try createSession(1, in: &state)
        #expect(state.runScheduler(at: now) == [.start(1, session: 1, acceptsAnyStatus: false)])
        #expect(try createSession(2, in: &state) == [1])
        #expect(state.beginRemoval(of: 1) == [1])
        #expect(state.abort(1) == true)
        state.forget(1, at: now)
        #expect(state.unschedule(2) == true)
        state.forget(2, at: now)
        #expect(state.removed(2, at: now) == [])
        #expect(try createSession(3, in: &state) == [])
        #expect(state.predecessors(of: 3) == [1])
        #expect(state.runScheduler(at: now) == [])
        #expect(state.endAttempt(of: 1) == false)
        #expect(state.removed(1, at: now) == [])
        #expect(state.runScheduler(at: now) == [.start(3, session: 3, acceptsAnyStatus: false)])
    }

    @Test func aReplacementThatIsRefusedKeepsWhatItWasToReplace() throws {
        var state = TransferState(configuration: DaemonConfiguration(), at: now)
        _ = try createSession(1, in: &state)
        let record = SessionRecord(2, identifier: "job/2") { $0.isTransient = true }
        let session = TransferState.Session(record: record)
        state.sessions[2] = session
        #expect(state.beginReplacement(by: session) == [1])
        state.abandonRemoval(of: 1, at: now)
        #expect(state.sessions[1]?.isEnding == false)
        #expect(state.sessions[2]?.predecessors == [])
        #expect(state.runScheduler(at: now) == [.start(1, session: 1, acceptsAnyStatus: false)])
    }
}

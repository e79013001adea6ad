import FoundationEssentials
import StageControl
import StageModel
import Testing

@testable import StageDaemon

/// Constraints of stagings under a configuration that changes.
struct StagingConstraintTests {
    private let now = Date(timeIntervalSince1970: 1_800_000_000)

    /// The configuration is reloaded while the journal stores the staging.
    @Test func aStagingThatIsBeingCreatedFollowsAChangedConfiguration() throws {
        var state = TransferState(configuration: DaemonConfiguration(), at: now)
        let session = SessionRecord(1) { $0.isTransient = true }
        state.sessions[1] = TransferState.Session(record: session)
        var job = StagingJob()
        job.conditions = UpdateConditions(requiresExternalPower: false)
        var request = TransferRequest(token: "1", kind: .staging, url: "a")
        request.staging = job
        var record = FullTask(1, host: Scheduler.workerHost).record
        record.constraints = .unmetered
        try state.reserve([request], in: 1)
        state.configuration.updateConditions = UpdateConditions(
            requiresExternalPower: true,
            allowsExpensiveNetworkAccess: true
        )
        state.created([(record, true, request)], in: 1, reason: nil, at: now)
        #expect(state.scheduler.items[1]?.constraints == .power)
        let task = FullTask(record: record, request: request)
        #expect(state.changedConstraints(of: task) == .power)
        // A promoted staging waits for nothing.
        record.id = 2
        record.priority = NewTask.promotedPriority
        record.constraints = []
        state.schedule(record, request: request, at: now)
        #expect(state.scheduler.items[2]?.constraints == [])
    }
}

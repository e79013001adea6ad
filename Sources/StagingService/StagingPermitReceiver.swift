import StageControl
import Synchronization

/// Converts the daemon's events about one task to the steps of a permit.
final class StagingPermitReceiver: SessionReceiver {
    private struct State {
        var wasAttached = false
        var task: Int64?
    }

    /// Number of attempts to reconnect to the daemon, over about 20 seconds.
    private static let attempts = 8

    private let client: SessionClient
    private let steps: AsyncStream<StagingPermit.Step>.Continuation
    private let state = Mutex(State())

    /// Creates the receiver of a session without a task.
    init(_ client: SessionClient, steps: AsyncStream<StagingPermit.Step>.Continuation) {
        self.client = client
        self.steps = steps
    }

    /// Sets the number of the task.
    func begin(_ task: Int64) { state.withLock { $0.task = task } }

    func prepare(_ status: SessionStatus) {}

    func take(_ event: SessionEvent) throws(ControlError) {
        switch event.kind {
        case .attached:
            state.withLock { $0.wasAttached = true }
            // Requested, because the daemon sends nothing about a task that it has lost.
            if let task = state.withLock({ $0.task }) { steps.yield(try now(task)) }
        case .changed:
            steps.yield(event.state == .running ? .running : .held(event.pendingReasons ?? []))
        case .cancelled, .invalidated: steps.yield(.cancelled)
        case .completed, .failed: steps.yield(.over)
        default: break
        }
    }

    func wasDetached(by problem: ControlError, failures: Int) -> Bool {
        guard state.withLock({ $0.wasAttached }) else { return false }
        steps.yield(failures < Self.attempts ? .lost : .gone)
        return failures < Self.attempts
    }

    /// Requests the state of the task from the daemon.
    private func now(_ task: Int64) throws(ControlError) -> StagingPermit.Step {
        do throws(ControlError) {
            let task = try client.answer(to: .task(task))
            return switch task.state {
            case .running: .running
            case .waiting, .suspended: .held(task.pendingReasons)
            case .cancelled: .cancelled
            case .completed, .failed: .over
            }
        } catch .refused(let refusal) where refusal.code == .notFound {
            // The daemon has lost its records, and does not resume the staging.
            return .gone
        }
    }
}

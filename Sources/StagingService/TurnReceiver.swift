import StageControl
import Synchronization

/// Makes steps of a turn of what the daemon says of its one task.
final class TurnReceiver: SessionReceiver {
    private struct State {
        var wasAttached = false
        var task: Int64?
    }

    /// The number of attempts to find the daemon again, over some twenty seconds.
    private static let attempts = 8

    private let client: SessionClient
    private let steps: AsyncStream<DaemonTurn.Step>.Continuation
    private let state = Mutex(State())

    /// Creates the receiver of a session without a task.
    init(_ client: SessionClient, steps: AsyncStream<DaemonTurn.Step>.Continuation) {
        self.client = client
        self.steps = steps
    }

    /// Takes in the number of the task.
    func begin(_ task: Int64) { state.withLock { $0.task = task } }

    func prepare(_ status: SessionStatus) {}

    func take(_ event: SessionEvent) throws(ControlError) {
        switch event.kind {
        case .attached:
            state.withLock { $0.wasAttached = true }
            // Changes while nothing was attached are not told again.
            if let task = state.withLock({ $0.task }) { steps.yield(try now(task)) }
        case .changed: steps.yield(event.state == .running ? .running : .held(event.holds ?? []))
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

    /// Asks the daemon for the state of the task.
    private func now(_ task: Int64) throws(ControlError) -> DaemonTurn.Step {
        do throws(ControlError) {
            let task = try client.answer(to: .task(task))
            return switch task.state {
            case .running: .running
            case .waiting, .suspended: .held(task.holds)
            case .cancelled: .cancelled
            case .completed, .failed: .over
            }
        } catch .refused(let refusal) where refusal.code == .notFound {
            // A daemon without its records, which does not go on with the staging.
            return .gone
        }
    }
}

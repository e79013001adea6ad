import StageControl
import StageSystem
import Synchronization

/// Reports the received bytes of a turn to the daemon, at most twice a second, for lists of tasks.
///
/// Uses a thread and a connection of its own, so that a daemon that hangs does not delay the transfers. A
/// later report replaces one that was lost.
final class TurnProgress: Sendable {
    /// The progress of the turn that the current Swift task runs in.
    @TaskLocal static var current: TurnProgress?

    private struct State {
        /// Set while a thread sends a report.
        var isTelling = false
        var hasEnded = false
        /// The earliest time of the next report.
        var next: ContinuousClock.Instant?
        /// The daemon, if one was found.
        var client: ControlClient?
    }

    /// Minimum time between two reports.
    private static let interval = Duration.milliseconds(500)
    /// Time until the next report after one that the daemon did not answer.
    private static let pause = Duration.seconds(10)
    /// Time limit for the daemon's answer.
    private static let timeout = Duration.seconds(3)

    private let task: Int64
    private let environment: [String: String]
    private let state = Mutex(State())

    /// Creates the progress of the daemon's task with this number.
    init(of task: Int64, environment: [String: String]) {
        self.task = task
        self.environment = environment
    }

    /// Reports the bytes to the daemon, unless the last report is too recent.
    func tell(_ bytes: () -> StagingBytes) {
        let now = ContinuousClock.now
        let isDue = state.withLock { state in
            guard !state.hasEnded, !state.isTelling, state.next.map({ $0 <= now }) ?? true else {
                return false
            }
            state.isTelling = true
            return true
        }
        guard isDue else { return }
        let bytes = bytes()
        do throws(FileError) {
            try SystemThread(name: "stage-progress") { self.send(bytes) }.detach()
        } catch {
            // No thread is available; a later report makes up for this one.
            finish(after: Self.pause, nil)
        }
    }

    /// Stops further reports.
    func end() { state.withLock { $0.hasEnded = true } }

    private func send(_ bytes: StagingBytes) {
        var change = TransferChange()
        change.stagingBytes = bytes
        do throws(ControlError) {
            let known = state.withLock { $0.client }
            let client =
                if let known { known } else {
                    try ControlClient.find(environment: environment)
                }
            do throws(ControlError) {
                _ = try client.answer(to: .change(task, by: change), timeout: Self.timeout)
            } catch .refused(let refusal) where refusal.code == .conflict {
                // The daemon is about to hold the task, or another process has taken it over.
            }
            finish(after: Self.interval, client)
        } catch {
            finish(after: Self.pause, nil)
        }
    }

    private func finish(after interval: Duration, _ client: ControlClient?) {
        state.withLock { state in
            state.isTelling = false
            state.next = .now + interval
            state.client = client
        }
    }
}

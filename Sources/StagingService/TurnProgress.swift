import StageControl
import StageSystem
import Synchronization

/// The bytes of a turn as the daemon is told of them: twice a second at most, for lists of tasks.
///
/// A thread of its own tells it, over a connection of its own, so a daemon that hangs holds nothing up. A number that
/// does not arrive is made up for by the next one.
final class TurnProgress: Sendable {
    /// The progress of the turn that the task runs in.
    @TaskLocal static var current: TurnProgress?

    private struct State {
        /// Whether a thread tells the daemon now.
        var isTelling = false
        var hasEnded = false
        /// The earliest time of the next message.
        var next: ContinuousClock.Instant?
        /// The daemon, where one was found.
        var client: ControlClient?
    }

    /// The time between two messages.
    private static let interval = Duration.milliseconds(500)
    /// The time until the next message after one that the daemon did not answer.
    private static let pause = Duration.seconds(10)
    /// The time that the daemon has to answer.
    private static let patience = Duration.seconds(3)

    private let task: Int64
    private let environment: [String: String]
    private let state = Mutex(State())

    /// Creates the progress of the daemon's task of this number.
    init(of task: Int64, environment: [String: String]) {
        self.task = task
        self.environment = environment
    }

    /// Has the daemon told of the bytes, unless it was told lately.
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
            // A process without threads to spare has other worries.
            finish(after: Self.pause, nil)
        }
    }

    /// Tells nothing more.
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
                _ = try client.answer(to: .change(task, by: change), timeout: Self.patience)
            } catch .refused(let refusal) where refusal.code == .conflict {
                // It is about to be held, or another process has it by now.
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

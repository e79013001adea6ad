import StageControl
import StageEngine
import StageSystem
import Synchronization

/// Reports of the received bytes of a turn to the daemon, at most twice a second, for lists of tasks.
///
/// A thread for blocking work sends them over a connection of their own: a daemon that hangs does not delay the transfers. A report that the
/// daemon does not accept is made again a few times, with the bytes of that time.
final class TurnProgress: Sendable {
    /// The progress of the turn that the current Swift task runs in.
    @TaskLocal static var current: TurnProgress?

    /// Minimum time between two reports.
    private static let interval = Duration.milliseconds(500)
    /// Time until the next report after one that the daemon did not answer.
    private static let pause = Duration.seconds(10)
    /// Time limit for the daemon's answer.
    private static let timeout = Duration.seconds(3)

    private let task: Int64
    private let environment: [String: String]
    /// The daemon, if one was found.
    private let client = Mutex<ControlClient?>(nil)
    /// Returns the bytes of the turn's newest work.
    private let bytes = Mutex<(@Sendable () -> StagingBytes)?>(nil)
    private let (changes, change) = AsyncStream.makeStream(
        of: Void.self,
        bufferingPolicy: .bufferingNewest(1)
    )

    /// Creates the progress of the daemon's task with this number.
    init(of task: Int64, environment: [String: String]) {
        self.task = task
        self.environment = environment
    }

    /// Requests a report, which is made as soon as the last one is old enough; `bytes` is then called.
    func requestReport(of bytes: @escaping @Sendable () -> StagingBytes) {
        self.bytes.withLock { $0 = bytes }
        change.yield()
    }

    /// Sends the reports until the Swift task is cancelled.
    func run() async {
        for await _ in changes {
            // A task that the daemon holds for long accepts none, and needs none.
            for _ in 1...3 where !Task.isCancelled {
                guard let bytes = bytes.withLock({ $0 }) else { break }
                let outcome = await withBlockingThread { self.send(bytes()) }
                try? await Task.sleep(for: outcome == .unanswered ? Self.pause : Self.interval)
                if outcome == .accepted { break }
            }
        }
    }

    private enum Outcome {
        case accepted, refused, unanswered
    }

    /// Sends a report to the daemon.
    private func send(_ bytes: StagingBytes) -> Outcome {
        var change = TransferChange()
        change.stagingBytes = bytes
        do throws(ControlError) {
            let known = client.withLock(\.self)
            let client =
                if let known { known } else {
                    try ControlClient.find(environment: environment)
                }
            self.client.withLock { $0 = client }
            _ = try client.answer(to: .change(task, by: change), timeout: Self.timeout)
            return .accepted
        } catch .refused(let refusal) where refusal.code == .conflict {
            // The daemon is about to hold the task or to give it this turn, or another process has taken it over.
            return .refused
        } catch {
            client.withLock { $0 = nil }
            return .unanswered
        }
    }
}

extension StagingBytes {
    /// The bytes of all packs of a run.
    init(_ progress: StagingProgress) {
        self.init(received: progress.received, expected: progress.downloadSize)
    }
}

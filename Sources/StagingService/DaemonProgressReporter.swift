import StageControl
import StageEngine
import StageSystem
import Synchronization

/// Reports the received bytes of a staging to the daemon, at most twice a second, for lists of tasks.
///
/// A thread for blocking work sends the reports over a separate connection, so that a daemon that hangs does not delay the transfers. A
/// report that the daemon does not accept is repeated a few times, each time with the current bytes.
final class DaemonProgressReporter: Sendable {
    /// The reporter for the staging that the current Swift task is part of.
    @TaskLocal static var current: DaemonProgressReporter?

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
    /// Returns the bytes of the newest work of the staging.
    private let bytes = Mutex<(@Sendable () -> StagingBytes)?>(nil)
    private let (changes, change) = AsyncStream.makeStream(
        of: Void.self,
        bufferingPolicy: .bufferingNewest(1)
    )

    /// Creates the reporter for the daemon's task with this number.
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
            // A task that waits for long accepts no report, and needs none.
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
            // The daemon is about to pause the task or to grant the permit, or another process has taken the task over.
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

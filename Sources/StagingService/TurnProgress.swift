import StageControl
import StageEngine
import StageSystem
import Synchronization

/// Reports the received bytes of a turn to the daemon, at most twice a second, for lists of tasks.
///
/// Uses a thread and a connection of its own, so that a daemon that hangs does not delay the transfers.
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
    private let (changes, change) = AsyncStream.makeStream(
        of: (@Sendable () -> StagingBytes).self,
        bufferingPolicy: .bufferingNewest(1)
    )

    /// Creates the progress of the daemon's task with this number.
    init(of task: Int64, environment: [String: String]) {
        self.task = task
        self.environment = environment
    }

    /// Has the bytes reported as soon as the last report is old enough; `bytes` is then called.
    func tell(_ bytes: @escaping @Sendable () -> StagingBytes) { change.yield(bytes) }

    /// Sends the reports until the Swift task is cancelled.
    func run() async {
        for await bytes in changes where !Task.isCancelled {
            let isAnswered = await withBlockingThread { self.send(bytes()) }
            try? await Task.sleep(for: isAnswered ? Self.interval : Self.pause)
        }
    }

    /// Sends a report, and returns whether the daemon answered.
    private func send(_ bytes: StagingBytes) -> Bool {
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
            return true
        } catch .refused(let refusal) where refusal.code == .conflict {
            // The daemon is about to hold the task, or another process has taken it over.
            return true
        } catch {
            client.withLock { $0 = nil }
            return false
        }
    }
}

extension StagingBytes {
    /// The bytes of all packs of a run.
    init(_ progress: StagingProgress) {
        self.init(received: progress.received, expected: progress.downloadSize)
    }
}

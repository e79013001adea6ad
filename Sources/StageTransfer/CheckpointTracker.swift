import StageModel
import StageSystem
import Synchronization

/// A partial file that is being filled, and the time of its last checkpoint.
final class CheckpointTracker: Sendable {
    let part: PartialFile
    private let report: @Sendable (TransferEvent) -> Void
    private let state: Mutex<(last: ContinuousClock.Instant, isRunning: Bool)>
    private let hasEnded = Mutex(false)

    init(
        _ part: PartialFile,
        now: ContinuousClock.Instant,
        report: @escaping @Sendable (TransferEvent) -> Void
    ) {
        self.part = part
        self.report = report
        state = Mutex((now, false))
    }

    /// Returns whether a checkpoint is due, and marks it as running if so.
    func beginIfDue(at now: ContinuousClock.Instant, rule: CheckpointRule) -> Bool {
        guard part.fault == nil else { return false }
        let newBytes = part.length.rawValue - part.durable
        return state.withLock { state in
            guard !state.isRunning, rule.isDue(newBytes: newBytes, sinceLast: now - state.last)
            else { return false }
            state.isRunning = true
            return true
        }
    }

    /// Marks the checkpoint as ended; callable from any thread, since the engine may have ended meanwhile.
    func end(at now: ContinuousClock.Instant) {
        state.withLock { $0 = (now, false) }
    }

    /// Makes the partial file durable, and reports that unless the attempt has ended.
    func checkpoint() throws(FileError) {
        try part.checkpoint { durable in
            hasEnded.withLock { if !$0 { report(.checkpointed(durable)) } }
        }
    }

    /// Suppresses further reports, and returns whether a checkpoint is running.
    func stopReporting() -> Bool {
        hasEnded.withLock { $0 = true }
        return state.withLock { $0.isRunning }
    }
}

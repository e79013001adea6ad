import Dispatch
import Logging
import StageSystem

extension TransferEngine {
    /// Makes the partial file durable periodically, with a report each time, until ``endCheckpoints(of:isComplete:)``.
    func beginCheckpoints(
        of part: PartialFile,
        report: @escaping @Sendable (TransferEvent) -> Void
    ) {
        checkpoints[ObjectIdentifier(part)] = CheckpointTracker(
            part,
            now: clock.now,
            report: report
        )
    }

    /// Ends the checkpoints that ``beginCheckpoints(of:report:)`` began; of complete content none is recorded afterwards.
    func endCheckpoints(of part: PartialFile, isComplete: Bool) async {
        let entry = checkpoints.removeValue(forKey: ObjectIdentifier(part))
        guard entry?.stopReporting() == true, isComplete else { return }
        // The running checkpoint may wait long for the disk: prevent its record instead of waiting for it.
        await withBlockingThread { part.complete() }
    }

    /// Starts the checkpoints that are due.
    func startCheckpoints(_ now: ContinuousClock.Instant) {
        for entry in checkpoints.values
        where entry.beginIfDue(
            at: now,
            rule: configuration.checkpoint
        ) {
            storage.async { [logger, clock] in
                Self.checkpoint(entry, logger: logger)
                entry.end(at: clock.now)
            }
        }
    }

    /// Waits until everything received is on disk, and every checkpoint begun before has ended.
    ///
    /// Only valid between ``beginCheckpoints(of:report:)`` and ``endCheckpoints(of:isComplete:)``.
    func flush(_ part: PartialFile) async {
        guard let entry = checkpoints[ObjectIdentifier(part)] else { return }
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            storage.async { [logger] in
                Self.checkpoint(entry, logger: logger)
                continuation.resume()
            }
        }
    }

    private nonisolated static func checkpoint(_ entry: CheckpointTracker, logger: Logger) {
        do throws(FileError) {
            try entry.checkpoint()
        } catch {
            // The partial file keeps the error, which ends the attempt.
            logger.warning(
                "A partial file could not be made durable",
                metadata: ["file.path": "\(error.path)", "error": "\(error)"]
            )
        }
    }
}

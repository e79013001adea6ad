import StageContainer
import StageModel
import SystemPackage

extension Container {
    /// Takes a lock of the container as soon as no other process or task has it.
    ///
    /// It is tried again from time to time, since a thread that waits in the kernel hears of no
    /// cancellation: a hook has a deadline, however long a lock is held.
    func lock<Lock: Sendable>(
        report: @Sendable (StagingEvent) -> Void,
        reporting event: @autoclosure () -> StagingEvent = .waitingForOther,
        _ attempt: (Container) throws(ContainerError) -> Lock?
    ) async throws(StageError) -> Lock {
        var pause = Duration.milliseconds(10)
        var isWaiting = false
        while true {
            let lock = try StageError.wrapping { () throws(ContainerError) in try attempt(self) }
            if let lock { return lock }
            if !isWaiting { report(event()) }
            isWaiting = true
            do {
                try await Task.sleep(for: pause)
            } catch {
                throw .cancelled
            }
            pause = min(pause * 2, .milliseconds(200))
        }
    }

    /// Takes the lock on a download as soon as no other process or task fetches it.
    func downloadLock(
        _ name: FilePath.Component,
        report: @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> DownloadLock {
        try await lock(
            report: report,
            reporting: holdsDownloadLock(name) ? .waitingForSharedDownload : .waitingForOther
        ) { container throws(ContainerError) in
            try container.attemptDownloadLock(name)
        }
    }
}

import StageContainer
import StageModel
import SystemPackage

extension Container {
    /// Acquires a lock of the container, and waits while another process or task holds it.
    ///
    /// Polls with a delay that grows from 10 to 200 ms: a thread that blocks in the kernel could not be
    /// cancelled, and callers have deadlines.
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

    /// Acquires the lock of a download, and waits while another process or task holds it.
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

import StageContainer
import StageModel
import StageSystem
import SystemPackage

/// Time limit of the wait for a lock that another process holds, and the error that is thrown after it.
struct LockTimeout: Sendable {
    var limit: Duration
    var error: StageError
}

extension Container {
    /// Acquires the lock on a pack, and waits while another process or task holds it.
    ///
    /// Without `timeout`, waits until the lock is free.
    ///
    /// - Throws: The error of `timeout` after its limit.
    func packLock(
        _ id: PackID,
        within timeout: LockTimeout? = nil,
        report: @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> PackLock {
        try await lock(within: timeout, report: report, reporting: .waitingForOther) {
            limit async throws(ContainerError) in
            try await waitForLock(id, within: limit)
        }
    }

    /// Acquires the lock of a download, and waits while another process or task holds it.
    ///
    /// - Throws: The error of `timeout` after its limit, unless a task of this process holds the lock.
    func downloadLock(
        _ name: FilePath.Component,
        within timeout: LockTimeout? = nil,
        report: @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> DownloadLock {
        try await lock(
            within: timeout,
            unless: { holdsDownloadLock(name) },
            report: report,
            reporting: holdsDownloadLock(name) ? .waitingForSharedDownload : .waitingForOther,
            waiting: { limit async throws(ContainerError) in
                try await waitForDownloadLock(name, within: limit)
            }
        )
    }

    /// Returns the single files of a version, after creating their directory if necessary; waits while another process
    /// deletes them.
    ///
    /// Polls, with a delay that grows from 10 to 200 ms, instead of waiting for a lock: the deleted directory has to be
    /// gone, too. Deletions are rare, so polling succeeds soon.
    func partialContent(
        of digest: Digest,
        report: @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> PartialContent {
        var pause = Duration.milliseconds(10)
        var isWaiting = false
        while true {
            let content = try StageError.wrapping { () throws(ContainerError) in
                try makePartialContent(of: digest)
            }
            if let content { return content }
            if !isWaiting { report(.waitingForOther) }
            isWaiting = true
            do {
                try await Task.sleep(for: pause)
            } catch {
                throw .cancelled
            }
            pause = min(pause * 2, .milliseconds(200))
        }
    }

    /// Acquires a lock of the container, and reports an event before it waits for others.
    ///
    /// `isOwn` returns whether a task of this process holds the lock, and then `timeout` does not apply.
    private func lock<Lock: Sendable>(
        within timeout: LockTimeout?,
        unless isOwn: () -> Bool = { false },
        report: @Sendable (StagingEvent) -> Void,
        reporting event: @autoclosure () -> StagingEvent,
        waiting wait: (Duration) async throws(ContainerError) -> Lock?
    ) async throws(StageError) -> Lock {
        var timeoutError: StageError?
        do throws(ContainerError) {
            if let lock = try await wait(.zero) { return lock }
            report(event())
            while timeoutError == nil, !Task.isCancelled {
                if let lock = try await wait(timeout?.limit ?? .longest) { return lock }
                timeoutError = isOwn() ? nil : timeout?.error
            }
        } catch {
            throw error.stageError
        }
        throw Task.isCancelled ? .cancelled : timeoutError ?? .cancelled
    }
}

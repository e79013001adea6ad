import StageContainer
import StageModel
import StageSystem
import SystemPackage

/// Time limit of the wait for a lock that another process holds, and the error after it.
struct LockPatience: Sendable {
    var limit: Duration
    var error: StageError
}

extension Container {
    /// Acquires the lock on a pack, and waits while another process or task holds it.
    ///
    /// - Throws: The error of `patience` after its limit; `nil` waits until the lock is free.
    func packLock(
        _ id: PackID,
        within patience: LockPatience? = nil,
        report: @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> PackLock {
        try await lock(within: patience, report: report, reporting: .waitingForOther) {
            limit async throws(ContainerError) in
            try await waitForLock(id, within: limit)
        }
    }

    /// Acquires the lock of a download, and waits while another process or task holds it.
    ///
    /// - Throws: The error of `patience` after its limit, unless a task of this process holds the lock.
    func downloadLock(
        _ name: FilePath.Component,
        within patience: LockPatience? = nil,
        report: @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> DownloadLock {
        try await lock(
            within: patience,
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
    /// Polls, with a delay that grows from 10 to 200 ms: it is a deletion that has to end, and not only its lock, and no
    /// process deletes them again and again.
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
    /// `isOwn` returns whether a task of this process holds the lock, to which the limit of `patience` does not apply.
    private func lock<Lock: Sendable>(
        within patience: LockPatience?,
        unless isOwn: () -> Bool = { false },
        report: @Sendable (StagingEvent) -> Void,
        reporting event: @autoclosure () -> StagingEvent,
        waiting wait: (Duration) async throws(ContainerError) -> Lock?
    ) async throws(StageError) -> Lock {
        var late: StageError?
        do throws(ContainerError) {
            if let lock = try await wait(.zero) { return lock }
            report(event())
            while late == nil, !Task.isCancelled {
                if let lock = try await wait(patience?.limit ?? .longest) { return lock }
                late = isOwn() ? nil : patience?.error
            }
        } catch {
            throw error.stageError
        }
        throw Task.isCancelled ? .cancelled : late ?? .cancelled
    }
}

import Foundation
import StageModel
import StagePack
import StageSystem
import Synchronization

/// The download of one pack, which any number of callers can wait for.
///
/// Queued until it is started. Cancelled when its last waiting caller is cancelled, unless it is kept, as
/// background updates are.
final class PackDownload: Sendable {
    private struct State {
        var task: Task<Void, Never>?
        var result: Result<Void, any Error>?
        /// Callers that wait, or have joined and are about to wait.
        var waiters: [UInt64: CheckedContinuation<Void, any Error>?] = [:]
        var lastKey: UInt64 = 0
        var isKept = false
        var isCancelled = false
        /// `true` while the last reported progress is a wait.
        var isPaused = false

        mutating func addWaiter() -> UInt64 {
            lastKey += 1
            waiters[lastKey] = .some(nil)
            return lastKey
        }

        /// Records a cancellation; returns whether it is the first one before the end.
        mutating func cancel() -> Bool {
            defer { isCancelled = true }
            return !isCancelled && result == nil
        }
    }

    let id: PackID
    let assetPack: AssetPack
    private let updates: Broadcast<AssetPackManager.DownloadStatusUpdate>
    private let progress: DownloadProgress
    private let state: Mutex<State>

    init(
        _ id: PackID,
        assetPack: AssetPack,
        updates: Broadcast<AssetPackManager.DownloadStatusUpdate>
    ) {
        self.id = id
        self.assetPack = assetPack
        self.updates = updates
        progress = DownloadProgress(parent: nil)
        state = Mutex(State())
        progress.totalUnitCount = Int64(assetPack.downloadSize)
        progress.cancellationHandler = { [weak self] in self?.cancel() }
    }

    /// Indicates whether it has ended, or was cancelled before it started.
    var hasEnded: Bool {
        state.withLock { $0.result != nil || $0.isCancelled && $0.task == nil }
    }

    /// Indicates whether it was cancelled; it may still run.
    var isCancelled: Bool { state.withLock { $0.isCancelled } }

    /// Keeps it running even if no caller waits; returns `false` if it was cancelled before.
    func keep() -> Bool {
        state.withLock { state in
            state.isKept = true
            return !state.isCancelled
        }
    }

    /// Keeps it running until the caller has waited; returns `nil` if it was cancelled before.
    func join() -> UInt64? {
        state.withLock { $0.isCancelled ? nil : $0.addWaiter() }
    }

    /// Starts it with a task that `body` creates; returns `false` if it was cancelled before.
    func begin(_ body: () -> Task<Void, Never>) -> Bool {
        state.withLock { state in
            guard !state.isCancelled else { return false }
            state.task = body()
            return true
        }
    }

    /// Records the progress of the download, and returns the status updates for it.
    ///
    /// A download that continues after a pause begins again, as Apple documents for `began`.
    func advance(to fetch: FetchProgress) -> [AssetPackManager.DownloadStatusUpdate] {
        // An update may need a fraction of the archive.
        let size = Int64(fetch.downloadSize.rawValue)
        if size > 0, progress.totalUnitCount != size { progress.totalUnitCount = size }
        progress.completedUnitCount = Int64(fetch.received.rawValue)
        let isPaused = fetch.waitingFor != nil
        let wasPaused = state.withLock { state in
            defer { state.isPaused = isPaused }
            return state.isPaused
        }
        guard !isPaused else { return [.paused(assetPack)] }
        var reports: [AssetPackManager.DownloadStatusUpdate] = []
        if wasPaused { reports.append(.began(assetPack)) }
        reports.append(.downloading(assetPack, progress))
        return reports
    }

    /// Completes the progress of a successful download, of which the last bytes may not have been reported.
    func completeProgress() { progress.completedUnitCount = progress.totalUnitCount }

    /// Ends it, and resumes all waiting callers.
    func end(_ result: Result<Void, any Error>) {
        let waiters = state.withLock { state in
            guard state.result == nil else { return [CheckedContinuation<Void, any Error>]() }
            state.result = result
            defer { state.waiters = [:] }
            return state.waiters.values.compactMap { $0 }
        }
        for waiter in waiters { waiter.resume(with: result) }
    }

    /// Cancels it: at once if it has not started, otherwise as soon as its task reacts.
    func cancel() {
        if state.withLock({ $0.cancel() }) { endCancelled() }
    }

    private func endCancelled() {
        if let task = state.withLock({ $0.task }) { return task.cancel() }
        updates.send(.failed(assetPack, CancellationError()))
        end(.failure(CancellationError()))
    }

    /// Waits until it has ended.
    ///
    /// - Parameter key: The result of ``join()``; `nil` to wait also for the end of a cancelled download.
    /// - Throws: The error of the download; `CancellationError` as soon as the caller is cancelled.
    func wait(_ key: UInt64? = nil) async throws {
        let key = key ?? state.withLock { $0.addWaiter() }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let result = state.withLock { state -> Result<Void, any Error>? in
                    if Task.isCancelled { return .failure(CancellationError()) }
                    if state.result == nil { state.waiters[key] = continuation }
                    return state.result
                }
                if let result { continuation.resume(with: result) }
            }
        } onCancel: {
            leave(key)
        }
    }

    private func leave(_ key: UInt64) {
        let (waiter, isDeserted) = state.withLock { state in
            let waiter = state.waiters.removeValue(forKey: key) ?? nil
            return (waiter, state.waiters.isEmpty && !state.isKept && state.cancel())
        }
        waiter?.resume(throwing: CancellationError())
        if isDeserted { endCancelled() }
    }
}

import Foundation
import StageModel
import StagePack
import Synchronization

/// The fetch of one pack, which any number of callers wait for.
///
/// It is queued until it is begun. When the last caller that waits is cancelled, it is cancelled itself,
/// unless it is kept: nobody waits for what is updated in the background.
final class PackDownload: Sendable {
    private struct State {
        var task: Task<Void, Never>?
        var result: Result<Void, any Error>?
        var waiters: [UInt64: CheckedContinuation<Void, any Error>] = [:]
        var lastKey: UInt64 = 0
        var isKept: Bool
    }

    let id: PackID
    let assetPack: AssetPack
    private let progress: Progress
    private let state: Mutex<State>

    init(_ id: PackID, _ assetPack: AssetPack, isKept: Bool) {
        self.id = id
        self.assetPack = assetPack
        progress = Progress.discreteProgress(totalUnitCount: Int64(assetPack.downloadSize))
        state = Mutex(State(isKept: isKept))
        progress.cancellationHandler = { [weak self] in self?.cancel() }
    }

    /// Whether it has ended, or was cancelled before it had begun.
    var hasEnded: Bool { state.withLock { $0.result != nil } }

    /// Goes on even if nobody waits.
    func keep() { state.withLock { $0.isKept = true } }

    /// Begins, with a task that `body` makes; returns `false` if it was cancelled before.
    func begin(_ body: () -> Task<Void, Never>) -> Bool {
        state.withLock { state in
            guard state.result == nil else { return false }
            state.task = body()
            return true
        }
    }

    /// Notes how far the fetch has come, and returns what is to be told of it.
    func advance(to fetch: FetchProgress) -> AssetPackManager.DownloadStatusUpdate {
        progress.completedUnitCount = Int64(fetch.received.rawValue)
        return fetch.waitingFor == nil ? .downloading(assetPack, progress) : .paused(assetPack)
    }

    /// Ends it for all who wait.
    func end(_ result: Result<Void, any Error>) {
        let waiters = state.withLock { state in
            guard state.result == nil else { return [CheckedContinuation<Void, any Error>]() }
            state.result = result
            defer { state.waiters = [:] }
            return Array(state.waiters.values)
        }
        for waiter in waiters { waiter.resume(with: result) }
    }

    /// Interrupts it: at once where it has not begun, else as soon as what runs has heard of it.
    func cancel() {
        let task = state.withLock { $0.task }
        guard let task else { return end(.failure(CancellationError())) }
        task.cancel()
    }

    /// Waits until it has ended.
    ///
    /// - Throws: why it failed; `CancellationError` as soon as the caller is cancelled.
    func wait() async throws {
        let key = state.withLock { state in
            state.lastKey += 1
            return state.lastKey
        }
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
            let waiter = state.waiters.removeValue(forKey: key)
            return (waiter, state.waiters.isEmpty && !state.isKept)
        }
        waiter?.resume(throwing: CancellationError())
        if isDeserted { cancel() }
    }
}

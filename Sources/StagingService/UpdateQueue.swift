import StageSystem
import Synchronization

/// Queue that delivers updates in order, on a thread that may block.
///
/// So neither transfers nor the threads of asynchronous functions wait for a terminal, or for a pipe without
/// a reader.
final class UpdateQueue: Sendable {
    private struct State {
        var updates: [StagingUpdate] = []
        /// Set while a thread delivers updates.
        var isDraining = false
        /// Continuations that resume when all updates are delivered.
        var waiters: [CheckedContinuation<Void, Never>] = []
    }

    private let state = Mutex(State())
    private let report: @Sendable (StagingUpdate) -> Void

    init(_ report: @escaping @Sendable (StagingUpdate) -> Void) { self.report = report }

    /// Adds an update, and returns at once.
    func add(_ update: StagingUpdate) {
        let isFirst = state.withLock { state in
            state.updates.append(update)
            defer { state.isDraining = true }
            return !state.isDraining
        }
        if isFirst { startBlockingThread { [self] in drain() } }
    }

    /// Waits until all updates are delivered.
    func finish() async {
        await withCheckedContinuation { continuation in
            let isIdle = state.withLock { state in
                if state.isDraining { state.waiters.append(continuation) }
                return !state.isDraining
            }
            if isIdle { continuation.resume() }
        }
    }

    private func drain() {
        while true {
            let (updates, waiters) = state.withLock { state in
                let updates = state.updates
                state.updates = []
                guard updates.isEmpty else {
                    return (updates, [CheckedContinuation<Void, Never>]())
                }
                state.isDraining = false
                defer { state.waiters = [] }
                return (updates, state.waiters)
            }
            for update in updates { report(update) }
            guard updates.isEmpty else { continue }
            for waiter in waiters { waiter.resume() }
            return
        }
    }
}

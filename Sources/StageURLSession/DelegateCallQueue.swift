import Foundation
import Synchronization

/// Calls the delegate on the application's queue, one call at a time and in order, even on a concurrent queue.
///
/// Operations that the application cancels lose no call.
final class DelegateCallQueue: Sendable {
    private struct State {
        /// Pending calls, from `next` on; those before were made and released.
        var calls: [(@Sendable () -> Void)?] = []
        var next = 0
        var isRunning = false

        mutating func take() -> (@Sendable () -> Void)? {
            guard next < calls.count else { return nil }
            defer {
                calls[next] = nil
                next += 1
                if next > 64, next > calls.count / 2 {
                    calls.removeFirst(next)
                    next = 0
                }
            }
            return calls[next]
        }

        /// Returns whether calls are pending; otherwise resets the queue.
        mutating func hasPendingCalls() -> Bool {
            guard next == calls.count else { return true }
            calls = []
            next = 0
            isRunning = false
            return false
        }
    }

    /// Operation queue of the application.
    let queue: OperationQueue
    private let state = Mutex(State())

    /// Creates a queue of calls on `queue`, or on a new serial one.
    init(_ queue: OperationQueue?) {
        if let queue {
            self.queue = queue
        } else {
            self.queue = OperationQueue()
            self.queue.name = "URLSession delegate"
            self.queue.maxConcurrentOperationCount = 1
        }
    }

    /// Schedules `call` after all calls that were added before.
    func add(_ call: @escaping @Sendable () -> Void) {
        let mustStart = state.withLock { state in
            state.calls.append(call)
            defer { state.isRunning = true }
            return !state.isRunning
        }
        if mustStart { schedule() }
    }

    private func schedule() {
        let hasEnded = OneShotFlag()
        let operation = BlockOperation { [self] in
            guard hasEnded.claim() else { return }
            // The lock is not held meanwhile: a call may add others.
            state.withLock { $0.take() }?()
            if state.withLock({ $0.hasPendingCalls() }) { schedule() }
        }
        // An operation that the application cancels ends without running its block: another one makes the call.
        operation.completionBlock = { [self] in if hasEnded.claim() { schedule() } }
        queue.addOperation(operation)
    }
}

import Foundation
import Synchronization

/// Calls the delegate on the application's queue, one call after another in order, whatever the queue.
final class DelegateFeed: Sendable {
    private struct State {
        /// The calls from `next` on; those before were made, and are let go.
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

        /// Whether there is more to do; if not, the feed is at rest.
        mutating func goesOn() -> Bool {
            guard next == calls.count else { return true }
            calls = []
            next = 0
            isRunning = false
            return false
        }
    }

    /// The queue of the application.
    let queue: OperationQueue
    private let state = Mutex(State())

    /// Creates a feed of `queue`, or of a new serial one.
    init(_ queue: OperationQueue?) {
        if let queue {
            self.queue = queue
        } else {
            self.queue = OperationQueue()
            self.queue.name = "URLSession delegate"
            self.queue.maxConcurrentOperationCount = 1
        }
    }

    /// Has `call` made after all that were added before.
    func add(_ call: @escaping @Sendable () -> Void) {
        let mustStart = state.withLock { state in
            state.calls.append(call)
            defer { state.isRunning = true }
            return !state.isRunning
        }
        if mustStart { schedule() }
    }

    private func schedule() {
        queue.addOperation { [self] in
            // The lock is not held meanwhile: a call may add others.
            state.withLock { $0.take() }?()
            if state.withLock({ $0.goesOn() }) { schedule() }
        }
    }
}

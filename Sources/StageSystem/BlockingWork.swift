import Synchronization

/// Runs work that blocks (a lock, a digest, an fsync) on a separate thread, so that the threads of Swift's
/// cooperative pool stay free.
///
/// If the system refuses the process its first thread, the work runs on the calling one.
///
/// Cancelling the task does not interrupt the work. The values that `body` captures are released before this
/// function returns, unless the caller holds them too.
package func withBlockingThread<Value: Sendable, Failure: Error>(
    _ body: @escaping @Sendable () throws(Failure) -> Value
) async throws(Failure) -> Value {
    let work = BlockingWork(body)
    let result = await withCheckedContinuation { continuation in
        BlockingThreads.shared.run { continuation.resume(returning: work.run()) }
    }
    return try result.get()
}

/// Work that releases its captured values before its caller is resumed.
///
/// Otherwise the thread that ran it could hold the last reference to a file lock, and the resumed caller
/// would find the lock taken, as if by another process.
private final class BlockingWork<Value: Sendable, Failure: Error>: Sendable {
    private let body: Mutex<(@Sendable () throws(Failure) -> Value)?>

    init(_ body: @escaping @Sendable () throws(Failure) -> Value) {
        self.body = Mutex(body)
    }

    /// Runs the work, once.
    func run() -> Result<Value, Failure> {
        guard let body = body.withLock({ $0.take() }) else {
            preconditionFailure("work runs once")
        }
        return Result { () throws(Failure) in try body() }
    }
}

/// Runs work that blocks for a long time, like ``withBlockingThread(_:)``, and passes it a ``Cancellation``
/// that is requested when the task is cancelled.
package func withCancellableThread<Value: Sendable, Failure: Error>(
    _ body: @escaping @Sendable (Cancellation) throws(Failure) -> Value
) async throws(Failure) -> Value {
    let cancellation = Cancellation()
    let result = await withTaskCancellationHandler {
        await withBlockingThread { Result { () throws(Failure) in try body(cancellation) } }
    } onCancel: {
        cancellation.request()
    }
    return try result.get()
}

/// Starts work that blocks on a separate thread, and does not wait for it.
package func startBlockingThread(_ body: @escaping @Sendable () -> Void) {
    BlockingThreads.shared.run(body)
}

/// A flag that asks work on another thread to end early, because its result is no longer needed.
package final class Cancellation: Sendable {
    private let isSet = Atomic(false)

    /// Creates a flag that is not set.
    package init() {}

    /// Indicates whether the work should end early.
    package var isRequested: Bool { isSet.load(ordering: .relaxed) }

    /// Asks the work to end early; this cannot be undone.
    package func request() { isSet.store(true, ordering: .relaxed) }
}

/// A pool of threads for blocking work, which grows to the number of jobs that block at the same time.
///
/// Dispatch's global queue is unsuitable: it has few threads, adds about one a second while they are blocked,
/// and these jobs wait for locks.
private final class BlockingThreads: Sendable {
    static let shared = BlockingThreads()

    private struct State {
        var jobs: [@Sendable () -> Void] = []
        var idle = 0
        var threads = 0
    }

    /// The limit of threads, far above the number of jobs that block at once in practice.
    ///
    /// Further jobs are queued.
    private static let maximum = 256

    private let sharedState = ConditionVariable(State())

    func run(_ job: @escaping @Sendable () -> Void) {
        // Only one thread is woken for a job: waking a hundred would cost more than the work.
        let mustStart = sharedState.changeWakingOne { state in
            state.jobs.append(job)
            guard state.jobs.count > state.idle, state.threads < Self.maximum else { return false }
            state.threads += 1
            return true
        }
        if mustStart { startThread() }
    }

    private func startThread() {
        do throws(FileError) {
            try SystemThread(name: "stage-blocking") { [self] in work() }.detach()
        } catch {
            // The process may have reached its limit of threads: the existing ones run the job later, or this one
            // does if there are none.
            let jobs = sharedState.change { state in
                state.threads -= 1
                guard state.threads == 0 else { return [@Sendable () -> Void]() }
                defer { state.jobs = [] }
                return state.jobs
            }
            for job in jobs { job() }
        }
    }

    private func work() {
        while true {
            var isIdle = false
            let job = sharedState.wait { state -> (@Sendable () -> Void)? in
                guard !state.jobs.isEmpty else {
                    if !isIdle { state.idle += 1 }
                    isIdle = true
                    return nil
                }
                if isIdle { state.idle -= 1 }
                return state.jobs.removeFirst()
            }
            job()
        }
    }
}

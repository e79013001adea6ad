import Synchronization

/// Runs work that blocks (a lock, a digest, a synchronization) on a thread of its own, so that the
/// threads that run Swift's tasks stay free.
///
/// The work is not interrupted when the task is cancelled.
public func withBlockingThread<Value: Sendable, Failure: Error>(
    _ body: @escaping @Sendable () throws(Failure) -> Value
) async throws(Failure) -> Value {
    let result: Result<Value, Failure> = await withCheckedContinuation { continuation in
        BlockingThreads.shared.run {
            continuation.resume(returning: Result { () throws(Failure) in try body() })
        }
    }
    return try result.get()
}

/// Runs work that blocks and takes long, like ``withBlockingThread(_:)``, and tells it when the task is
/// cancelled.
public func withCancellableThread<Value: Sendable, Failure: Error>(
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

/// Tells work on another thread that nobody waits for what comes of it.
public final class Cancellation: Sendable {
    private let isSet = Atomic(false)

    /// Creates one that is not requested.
    public init() {}

    /// Whether the work should end.
    public var isRequested: Bool { isSet.load(ordering: .relaxed) }

    /// Asks the work to end, once and for all.
    public func request() { isSet.store(true, ordering: .relaxed) }
}

/// Threads that wait for blocking work, as many as are blocked at once.
///
/// Not Dispatch's global queue: that has few threads, adds one about every second when they are
/// blocked, and locks are waited for here.
private final class BlockingThreads: Sendable {
    static let shared = BlockingThreads()

    private struct State {
        var jobs: [@Sendable () -> Void] = []
        var idle = 0
        var threads = 0
    }

    /// More than anything here blocks at once; what comes beyond it waits its turn.
    private static let maximum = 256

    private let monitor = Monitor(State())

    func run(_ job: @escaping @Sendable () -> Void) {
        // One job is for one thread: a hundred that wake up for each would cost more than the work.
        let mustStart = monitor.changeForOne { state in
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
            // The process may have no more threads: those that there are do the work in time.
            let isLast = monitor.change { state in
                state.threads -= 1
                return state.threads == 0
            }
            precondition(!isLast, "the first thread could not be started: \(error)")
        }
    }

    private func work() {
        while true {
            var isIdle = false
            let job = monitor.wait { state -> (@Sendable () -> Void)? in
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

import Synchronization

/// Runs work that blocks (a lock, a digest, a synchronization) on a thread of its own, so that the
/// threads that run Swift's tasks stay free.
///
/// The work is not interrupted when the task is cancelled. What it captures is not held any more when this
/// returns, unless the caller holds it.
public func withBlockingThread<Value: Sendable, Failure: Error>(
    _ body: @escaping @Sendable () throws(Failure) -> Value
) async throws(Failure) -> Value {
    let work = BlockingWork(body)
    let result = await withCheckedContinuation { continuation in
        BlockingThreads.shared.run { continuation.resume(returning: work.run()) }
    }
    return try result.get()
}

/// Work that lets go of what it holds before its end is told.
///
/// The thread that has run it may be the last to have it. A lock that it still held when the caller goes
/// on would be found taken, as if another process had it.
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

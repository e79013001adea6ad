import Synchronization

/// Runs work that blocks (a lock, a digest, an fsync) on a separate thread, so that the threads of Swift's
/// cooperative pool stay free.
///
/// If the system refuses the process its first thread, the work runs on the calling one. Pass `user` if the work may wait
/// for a file system that this user has mounted, possibly without end: such work uses a part of the threads only.
///
/// Cancelling the task does not interrupt the work. The values that `body` captures are released before this
/// function returns, unless the caller holds them too.
package func withBlockingThread<Value: Sendable, Failure: Error>(
    of user: UInt32? = nil,
    _ body: @escaping @Sendable () throws(Failure) -> Value
) async throws(Failure) -> Value {
    let work = BlockingWork(body)
    let result = await withCheckedContinuation { continuation in
        BlockingThreads.shared.run(of: user) { continuation.resume(returning: work.run()) }
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

/// Runs work that blocks for a long time, like ``withBlockingThread(of:_:)``, and passes it a ``Cancellation``
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
    BlockingThreads.shared.run(of: nil, body)
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

    private struct Job: Sendable {
        /// User whose file systems the job may wait for.
        var user: UInt32?
        var body: @Sendable () -> Void
    }

    private struct State {
        var jobs: [Job] = []
        var idle = 0
        var threads = 0
        /// Threads that run jobs of each user, and of all users.
        var threadsOfUsers: [UInt32: Int] = [:]
        var threadsOfAllUsers = 0

        /// Returns whether the limits for users permit that a job runs.
        func mayRun(_ job: Job) -> Bool {
            guard let user = job.user else { return true }
            return threadsOfUsers[user, default: 0] < BlockingThreads.maximumPerUser
                && threadsOfAllUsers < BlockingThreads.maximumOfUsers
        }

        /// Removes and returns the first job that may run; `nil` if there is none.
        mutating func takeJob() -> Job? {
            guard let index = jobs.firstIndex(where: { mayRun($0) }) else { return nil }
            let job = jobs.remove(at: index)
            if let user = job.user {
                threadsOfUsers[user, default: 0] += 1
                threadsOfAllUsers += 1
            }
            return job
        }

        /// Notes that a job of a user has ended.
        mutating func endJob(of user: UInt32) {
            let rest = threadsOfUsers[user, default: 1] - 1
            threadsOfUsers[user] = rest > 0 ? rest : nil
            threadsOfAllUsers -= 1
        }
    }

    /// The limit of threads, far above the number of jobs that block at once in practice.
    ///
    /// Further jobs are queued.
    private static let maximum = 256
    /// The limit of threads for jobs of one user.
    private static let maximumPerUser = 8
    /// The limit of threads for jobs of users: a thread that waits for a file system of a user may never be free again.
    private static let maximumOfUsers = 128

    private let sharedState = ConditionVariable(State())

    func run(of user: UInt32?, _ body: @escaping @Sendable () -> Void) {
        // Only one thread is woken for a job: waking a hundred would cost more than the work.
        let mustStart = sharedState.changeWakingOne { state in
            let job = Job(user: user, body: body)
            state.jobs.append(job)
            // A job that may not run yet is run by a thread that ends another job of the users.
            guard state.mayRun(job), state.jobs.count > state.idle, state.threads < Self.maximum
            else { return false }
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
                guard state.threads == 0 else { return [Job]() }
                defer { state.jobs = [] }
                return state.jobs
            }
            for job in jobs { job.body() }
        }
    }

    private func work() {
        while true {
            var isIdle = false
            let job = sharedState.wait { state -> Job? in
                guard let job = state.takeJob() else {
                    if !isIdle { state.idle += 1 }
                    isIdle = true
                    return nil
                }
                if isIdle { state.idle -= 1 }
                return job
            }
            job.body()
            if let user = job.user { sharedState.changeWakingOne { $0.endJob(of: user) } }
        }
    }
}

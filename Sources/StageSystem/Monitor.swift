import CLinux
import Glibc

/// State that threads share, with a way to wait until it changes.
///
/// For threads of this house alone: waiting blocks the thread, so nothing that runs on the cooperative
/// pool may call ``wait(_:)``.
@safe public final class Monitor<State>: Sendable {
    // The pointers are set once; what they point to is for the pthread functions alone, and the state
    // is touched by whoever holds the mutex.
    private nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private nonisolated(unsafe) let condition: UnsafeMutablePointer<pthread_cond_t>
    private nonisolated(unsafe) var state: State

    /// Creates a monitor of `state`.
    public init(_ state: sending State) {
        unsafe mutex = .allocate(capacity: 1)
        unsafe condition = .allocate(capacity: 1)
        unsafe self.state = state
        unsafe mutex.initialize(to: pthread_mutex_t())
        unsafe condition.initialize(to: pthread_cond_t())
        var attributes = pthread_condattr_t()
        let status =
            unsafe pthread_mutex_init(mutex, nil)
            | pthread_condattr_init(&attributes)
            | pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
            | pthread_cond_init(condition, &attributes)
        precondition(status == 0, "a mutex could not be made")
        unsafe _ = pthread_condattr_destroy(&attributes)
    }

    deinit {
        unsafe _ = pthread_cond_destroy(condition)
        unsafe _ = pthread_mutex_destroy(mutex)
        unsafe condition.deallocate()
        unsafe mutex.deallocate()
    }

    /// Calls `body` with the state, which no other thread touches meanwhile, and wakes those who wait.
    public func change<Result>(_ body: (inout State) -> Result) -> Result {
        unsafe _ = pthread_mutex_lock(mutex)
        defer {
            unsafe _ = pthread_cond_broadcast(condition)
            unsafe _ = pthread_mutex_unlock(mutex)
        }
        return unsafe body(&state)
    }

    /// Calls `body` with the state, which no other thread touches meanwhile, and wakes one of those who
    /// wait; for states where any of them can do what there is to do.
    public func changeForOne<Result>(_ body: (inout State) -> Result) -> Result {
        unsafe _ = pthread_mutex_lock(mutex)
        defer {
            unsafe _ = pthread_cond_signal(condition)
            unsafe _ = pthread_mutex_unlock(mutex)
        }
        return unsafe body(&state)
    }

    /// Calls `body` with the state again and again, after each change, until it returns a value.
    public func wait<Result>(_ body: (inout State) -> Result?) -> Result {
        unsafe _ = pthread_mutex_lock(mutex)
        defer { unsafe _ = pthread_mutex_unlock(mutex) }
        while true {
            if let result = unsafe body(&state) { return result }
            unsafe _ = pthread_cond_wait(condition, mutex)
        }
    }

    /// Calls `body` with the state again and again, after each change, until it returns a value, or returns
    /// `nil` when that did not come to pass within `duration`.
    public func wait<Result>(
        atMost duration: Duration,
        _ body: (inout State) -> Result?
    ) -> Result? {
        var deadline = timespec()
        unsafe _ = clock_gettime(CLOCK_MONOTONIC, &deadline)
        let parts = duration.components
        let nanoseconds = deadline.tv_nsec + Int(parts.attoseconds / 1_000_000_000)
        deadline.tv_sec += Int(parts.seconds) + nanoseconds / 1_000_000_000
        deadline.tv_nsec = nanoseconds % 1_000_000_000
        unsafe _ = pthread_mutex_lock(mutex)
        defer { unsafe _ = pthread_mutex_unlock(mutex) }
        while true {
            if let result = unsafe body(&state) { return result }
            let status = unsafe pthread_cond_timedwait(condition, mutex, &deadline)
            if status == ETIMEDOUT { return unsafe body(&state) }
        }
    }
}

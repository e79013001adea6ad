import CLinux
import Glibc

/// A value guarded by a mutex, with a condition variable to wait for changes.
///
/// Waiting blocks the thread: never call ``wait(_:)`` on Swift's cooperative pool, only on threads of this
/// package.
@safe package final class ConditionVariable<State>: Sendable {
    // The pointers never change; only pthread functions use their memory, and the value is only accessed with
    // the mutex locked.
    private nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private nonisolated(unsafe) let condition: UnsafeMutablePointer<pthread_cond_t>
    private nonisolated(unsafe) var state: State

    /// Creates a condition variable for `state`.
    package init(_ state: sending State) {
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

    /// Calls `body` with the value, and wakes no thread; for reads.
    package func withValue<Result>(_ body: (State) -> Result) -> Result {
        unsafe _ = pthread_mutex_lock(mutex)
        defer { unsafe _ = pthread_mutex_unlock(mutex) }
        return unsafe body(state)
    }

    /// Calls `body` with exclusive access to the value, and wakes all waiting threads.
    package func change<Result>(_ body: (inout State) -> Result) -> Result {
        unsafe _ = pthread_mutex_lock(mutex)
        defer {
            unsafe _ = pthread_cond_broadcast(condition)
            unsafe _ = pthread_mutex_unlock(mutex)
        }
        return unsafe body(&state)
    }

    /// Calls `body` with exclusive access to the value, and wakes one waiting thread; for changes that any
    /// single waiting thread can handle.
    package func changeWakingOne<Result>(_ body: (inout State) -> Result) -> Result {
        unsafe _ = pthread_mutex_lock(mutex)
        defer {
            unsafe _ = pthread_cond_signal(condition)
            unsafe _ = pthread_mutex_unlock(mutex)
        }
        return unsafe body(&state)
    }

    /// Calls `body` with exclusive access to the value, now and after each change, until it returns a result.
    package func wait<Result>(_ body: (inout State) -> Result?) -> Result {
        unsafe _ = pthread_mutex_lock(mutex)
        defer { unsafe _ = pthread_mutex_unlock(mutex) }
        while true {
            if let result = unsafe body(&state) { return result }
            unsafe _ = pthread_cond_wait(condition, mutex)
        }
    }

    /// Calls `body` with exclusive access to the value, now and after each change, until it returns a result;
    /// returns `nil` after `duration`.
    package func wait<Result>(
        atMost duration: Duration,
        _ body: (inout State) -> Result?
    ) -> Result? {
        var deadline = timespec()
        unsafe _ = clock_gettime(CLOCK_MONOTONIC, &deadline)
        let parts = duration.sleepable.components
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

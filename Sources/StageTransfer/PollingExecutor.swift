import CCurl
import Glibc
import StageSystem
import Synchronization
import SystemPackage

/// Executor that runs an actor's jobs and libcurl's transfers on one thread.
///
/// libcurl requires that only one thread at a time uses a multi handle, and that this thread keeps calling it while
/// transfers run. The executor's thread runs the queued jobs, lets libcurl transfer bytes, and sleeps in
/// `curl_multi_poll` until a socket is ready or a job arrives.
@safe final class PollingExecutor: SerialExecutor {
    /// Multi handle whose sockets the thread polls.
    ///
    /// Other threads use it only for `curl_multi_wakeup`, the one call that libcurl allows from them.
    nonisolated(unsafe) let multi: UnsafeMutableRawPointer
    /// `true` if `curl_multi_wakeup` works: libcurl creates a handle without it when it gets no descriptors.
    private let hasWakeup: Bool
    /// Longest sleep of the thread, in milliseconds, if it cannot be woken.
    private static let longestSleepWithoutWakeup: CInt = 20

    private let state = Mutex(State())

    private struct State {
        var jobs: [UnownedJob] = []
        var cancelled: [Int] = []
        /// `true` if `drive` has to be called before the thread sleeps again.
        var mustDrive = false
        var thread: pthread_t?
        var isPolling = false
        var isStopping = false
        var hasEnded = false
    }

    /// Longest time to sleep, and the sockets whose readiness ends it earlier.
    struct Pause: Sendable {
        var milliseconds: CInt
        var sockets: [curl_waitfd] = []
    }

    /// Drives libcurl's transfers: receives the tags of cancelled transfers, and
    /// returns the longest time to sleep.
    typealias Drive = @Sendable ([Int]) -> Pause

    /// Creates the multi handle, which keeps up to `connections` open for reuse.
    init(connections: Int) {
        precondition(curlIsReady, "libcurl could not be set up")
        guard let multi = unsafe curl_multi_init() else { fatalError("out of memory") }
        unsafe self.multi = multi
        let code = unsafe stage_multi_set_number(multi, CURLMOPT_MAXCONNECTS, connections)
        precondition(code == CURLM_OK, "libcurl refused to keep connections")
        hasWakeup = unsafe curl_multi_wakeup(multi) == CURLM_OK
    }

    deinit {
        // The thread has ended and so have its transfers: cleanup cannot fail.
        unsafe _ = curl_multi_cleanup(multi)
    }

    /// Starts the thread, which calls `drive` whenever libcurl may have work.
    ///
    /// - Throws: ``FileError`` if the system refuses a thread; the executor runs nothing then.
    func start(drive: @escaping Drive) throws(FileError) {
        let start = unsafe Unmanaged.passRetained(Start(executor: self, drive: drive))
        var thread = pthread_t()
        let status = unsafe pthread_create(&thread, nil, threadMain, start.toOpaque())
        guard status == 0 else {
            unsafe start.release()
            throw FileError("start", path: "stage-transfer", errno: Errno(rawValue: status))
        }
        let id = thread
        state.withLock { $0.thread = id }
    }

    /// Ends the thread after the queued jobs have run, and waits for it: libcurl's resources must be freed before the
    /// program exits and OpenSSL cleans up.
    func stop() async {
        wake { $0.isStopping = true }
        await withBlockingThread { [self] in
            guard let thread = state.withLock({ $0.thread }) else { return }
            _ = pthread_join(thread, nil)
        }
    }

    /// Cancels a transfer; callable from any thread.
    func cancel(_ tag: Int) {
        wake { $0.cancelled.append(tag) }
    }

    /// Makes the thread call `drive` soon; callable from any thread.
    func wake() { wake { $0.mustDrive = true } }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        wake { state in
            precondition(!state.hasEnded, "a transfer engine was used after its scope")
            state.jobs.append(job)
        }
    }

    func checkIsolated() {
        precondition(state.withLock { $0.thread } == pthread_self())
    }

    private func wake(_ change: (inout State) -> Void) {
        let isPolling = state.withLock { state in
            change(&state)
            defer { state.isPolling = false }
            return state.isPolling
        }
        if isPolling && hasWakeup { wakeUp() }
    }

    /// Wakes the thread.
    ///
    /// Retries if the kernel is temporarily out of memory, since nothing else would wake it.
    private func wakeUp() {
        for _ in 0..<1000 {
            guard unsafe curl_multi_wakeup(multi) != CURLM_OK else { return }
            usleep(1000)
        }
    }

    fileprivate func run(drive: Drive) {
        state.withLock { $0.thread = pthread_self() }
        while true {
            let (jobs, cancelled, hasEnded) = state.withLock { state in
                defer {
                    state.jobs.removeAll(keepingCapacity: true)
                    state.cancelled.removeAll(keepingCapacity: true)
                    state.mustDrive = false
                }
                state.hasEnded = state.isStopping && state.jobs.isEmpty
                return (state.jobs, state.cancelled, state.hasEnded)
            }
            if hasEnded { return }
            for job in jobs { unsafe job.runSynchronously(on: asUnownedSerialExecutor()) }
            poll(for: drive(cancelled))
        }
    }

    private func poll(for pause: Pause) {
        let mayPoll = state.withLock { state in
            state.isPolling =
                state.jobs.isEmpty && state.cancelled.isEmpty && !state.mustDrive
                && !state.isStopping
            return state.isPolling
        }
        guard mayPoll else { return }
        // An error means that there is nothing to poll; the loop continues at once or after the timeout, and the
        // transfers report their own failures.
        let longest = hasWakeup ? pause.milliseconds : Self.longestSleepWithoutWakeup
        let time = min(pause.milliseconds, longest)
        var sockets = pause.sockets
        unsafe sockets.withUnsafeMutableBufferPointer { sockets in
            let count = UInt32(sockets.count)
            unsafe _ = curl_multi_poll(multi, sockets.baseAddress, count, time, nil)
        }
        state.withLock { $0.isPolling = false }
    }
}

/// Argument of the thread's main function.
private final class Start: Sendable {
    let executor: PollingExecutor
    let drive: PollingExecutor.Drive

    init(executor: PollingExecutor, drive: @escaping PollingExecutor.Drive) {
        self.executor = executor
        self.drive = drive
    }
}

private func threadMain(_ context: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    guard let context = unsafe context else { return nil }
    let start = unsafe Unmanaged<Start>.fromOpaque(context).takeRetainedValue()
    start.executor.run(drive: start.drive)
    return nil
}

/// `true` if libcurl's process-wide initialization, which runs once, succeeded.
private let curlIsReady = curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK

import Synchronization

/// Requests of this process for the lock on a file, granted in their order.
///
/// While requests wait, one thread waits for the lock in the kernel, which grants it as soon as it is free. A process that polled
/// might never find it free while another process takes it again and again. The time in which the machine is suspended does not
/// count towards the limits of requests.
package final class LockQueue: Sendable {
    private struct State {
        var requests: [LockRequest] = []
        /// `true` while a thread grants requests.
        var isServed = false
    }

    private let state = Mutex(State())
    private static let queues = Mutex<[FileKey: Reference]>([:])

    /// Device and inode of a file.
    private struct FileKey: Hashable {
        let device: UInt64
        let inode: UInt64
    }

    private struct Reference {
        weak var queue: LockQueue?
    }

    /// Returns the queue of this process for the lock on `file`.
    ///
    /// All requests for a file share one queue and its thread. The thread cannot be interrupted, so with a queue for each
    /// request, every cancelled one would leave a waiting thread.
    package static func shared(for file: borrowing File) throws(FileError) -> LockQueue {
        let status = try file.status()
        let key = FileKey(device: status.device, inode: status.inode)
        return queues.withLock { queues in
            if let queue = queues[key]?.queue { return queue }
            queues = queues.filter { $0.value.queue != nil }
            let queue = LockQueue()
            queues[key] = Reference(queue: queue)
            return queue
        }
    }

    /// Creates a queue without requests.
    package init() {}

    /// Number of waiting requests.
    package var count: Int { state.withLock { $0.requests.count } }

    /// Takes the lock; blocks the thread for `limit` at most.
    ///
    /// The caller must call ``RetriedLock/release()``: the queue may refer to the lock for longer than the caller.
    ///
    /// - Returns: `false` if others held the lock until then.
    /// - Throws: ``FileError`` if the file cannot be locked.
    package func block(for lock: RetriedLock, within limit: Duration) throws(FileError) -> Bool {
        if try attempt(lock, within: limit) { return true }
        guard limit > .zero else { return false }
        let request = LockRequest(lock)
        add(request)
        switch request.wait(atMost: limit) ?? end(request, as: .timedOut) {
        case .granted: return true
        case .failed(let error): throw error
        case .timedOut, .cancelled: return false
        }
    }

    /// Takes the lock; suspends the task for `limit` at most.
    ///
    /// The caller must call ``RetriedLock/release()``, as after ``block(for:within:)``.
    ///
    /// - Returns: `false` if others held the lock until then.
    /// - Throws: ``FileError`` if the file cannot be locked, and `CancellationError` if the task is cancelled.
    package func wait(for lock: RetriedLock, within limit: Duration) async throws -> Bool {
        if try attempt(lock, within: limit) { return true }
        guard limit > .zero else { return false }
        let request = LockRequest(lock)
        let timer = Task {
            // Cancelled: the request has ended.
            guard (try? await Task.sleep(for: limit.sleepable, clock: .suspending)) != nil else {
                return
            }
            _ = end(request, as: .timedOut)
        }
        defer { timer.cancel() }
        let ending = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                request.whenEnded { continuation.resume(returning: $0) }
                add(request)
            }
        } onCancel: {
            _ = end(request, as: .cancelled)
        }
        switch ending {
        case .granted: return true
        case .failed(let error): throw error
        case .timedOut: return false
        case .cancelled: throw CancellationError()
        }
    }

    /// Takes the lock if it is free; with time to wait, does not overtake requests that wait already.
    private func attempt(_ lock: RetriedLock, within limit: Duration) throws(FileError) -> Bool {
        guard count == 0 || limit <= .zero else { return false }
        return try lock.attempt()
    }

    private func add(_ request: LockRequest) {
        let mustServe = state.withLock { state in
            state.requests.append(request)
            defer { state.isServed = true }
            return !state.isServed
        }
        guard mustServe else { return }
        do throws(FileError) {
            // A thread outside of the limited pool: it blocks for as long as another process has the lock.
            try SystemThread(name: "stage-lock") { self.serve() }.detach()
        } catch {
            let requests = state.withLock { state in
                defer { (state.requests, state.isServed) = ([], false) }
                return state.requests
            }
            for request in requests { _ = request.end(as: .failed(error)) }
        }
    }

    /// Ends a request that has not ended, and returns how it has ended.
    private func end(_ request: LockRequest, as end: LockRequest.End) -> LockRequest.End {
        // Removed first: the resumed caller may read `count`.
        state.withLock { $0.requests.removeAll { $0 === request } }
        return request.end(as: end)
    }

    /// Grants the requests, one after the other.
    private func serve() {
        while let request = next() {
            do throws(FileError) {
                try request.lock.wait()
                // The request timed out or was cancelled: the next one waits for the lock again.
                if end(request, as: .granted) != .granted { request.lock.release() }
            } catch {
                _ = end(request, as: .failed(error))
            }
        }
    }

    /// Returns the first request; `nil` if none waits.
    private func next() -> LockRequest? {
        state.withLock { state in
            state.requests.removeAll(where: \.hasEnded)
            state.isServed = !state.requests.isEmpty
            return state.requests.first
        }
    }
}

/// A request for a lock, which ends once.
private final class LockRequest: Sendable {
    /// The end of a request.
    enum End: Equatable, Sendable {
        case granted
        case failed(FileError)
        /// The time limit was reached.
        case timedOut
        case cancelled
    }

    private struct State {
        var end: End?
        var receive: (@Sendable (End) -> Void)?
    }

    let lock: RetriedLock
    private let state = ConditionVariable(State())

    init(_ lock: RetriedLock) { self.lock = lock }

    var hasEnded: Bool { state.withValue { $0.end != nil } }

    /// Ends the request, unless it has ended, and returns how it has ended first.
    func end(as end: End) -> End {
        let (first, receive) = state.change { state in
            let first = state.end ?? end
            state.end = first
            defer { state.receive = nil }
            return (first, state.receive)
        }
        receive?(first)
        return first
    }

    /// Calls `receive` once the request has ended, or at once if it has.
    func whenEnded(_ receive: @escaping @Sendable (End) -> Void) {
        let end = state.change { state in
            if state.end == nil { state.receive = receive }
            return state.end
        }
        if let end { receive(end) }
    }

    /// Blocks the thread until the request has ended, for `limit` at most; returns `nil` after that time.
    func wait(atMost limit: Duration) -> End? { state.wait(atMost: limit) { $0.end } }
}

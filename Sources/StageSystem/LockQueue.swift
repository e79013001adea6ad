import Synchronization

/// Requests of this process for the lock on a file, granted in their order.
///
/// While requests wait, one thread waits for the lock in the kernel. A process that takes the lock again and again leaves others their
/// turn only if they wait there: those that tried from time to time would find it held.
package final class LockQueue: Sendable {
    private struct State {
        var requests: [LockRequest] = []
        /// `true` while a thread grants requests.
        var isServed = false
    }

    private let state = Mutex(State())
    private static let queues = Mutex<[Place: Reference]>([:])

    /// A file.
    private struct Place: Hashable {
        let device: UInt64
        let inode: UInt64
    }

    private struct Reference {
        weak var queue: LockQueue?
    }

    /// Returns the queue of this process for the lock on `file`.
    ///
    /// One for all that wait for a file, so that requests that have ended leave at most one thread behind.
    package static func shared(for file: borrowing File) throws(FileError) -> LockQueue {
        let status = try file.status()
        let place = Place(device: status.device, inode: status.inode)
        return queues.withLock { queues in
            if let queue = queues[place]?.queue { return queue }
            queues = queues.filter { $0.value.queue != nil }
            let queue = LockQueue()
            queues[place] = Reference(queue: queue)
            return queue
        }
    }

    /// Creates a queue without requests.
    package init() {}

    /// Number of waiting requests.
    package var count: Int { state.withLock { $0.requests.count } }

    /// Takes the lock; blocks the thread for `limit` at most.
    ///
    /// The caller has to call ``RetriedLock/release()``: the queue may have a reference to the lock for longer than the caller.
    ///
    /// - Returns: `false` if others held the lock until then.
    /// - Throws: ``FileError`` if the file cannot be locked.
    package func block(for lock: RetriedLock, within limit: Duration) throws(FileError) -> Bool {
        if try attempt(lock, within: limit) { return true }
        guard limit > .zero else { return false }
        let request = LockRequest(lock)
        add(request)
        switch request.wait(atMost: limit) ?? end(request, as: .late) {
        case .granted: return true
        case .failed(let error): throw error
        case .late, .cancelled: return false
        }
    }

    /// Takes the lock; suspends the task for `limit` at most.
    ///
    /// The caller has to call ``RetriedLock/release()``, as after ``block(for:within:)``.
    ///
    /// - Returns: `false` if others held the lock until then.
    /// - Throws: ``FileError`` if the file cannot be locked, and `CancellationError` if the task is cancelled.
    package func wait(for lock: RetriedLock, within limit: Duration) async throws -> Bool {
        if try attempt(lock, within: limit) { return true }
        guard limit > .zero else { return false }
        let request = LockRequest(lock)
        let timer = Task {
            // Cancelled: the request has ended.
            guard (try? await Task.sleep(for: limit.sleepable)) != nil else { return }
            _ = end(request, as: .late)
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
        case .late: return false
        case .cancelled: throw CancellationError()
        }
    }

    /// Takes the lock if it is free, unless earlier requests wait; one that cannot wait does not let them pass.
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
            // Not one of a limited number of threads: it waits as long as another process has the lock.
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
        // Before the end resumes its caller, which may count the requests.
        state.withLock { $0.requests.removeAll { $0 === request } }
        return request.end(as: end)
    }

    /// Grants the requests, one after the other.
    private func serve() {
        while let request = next() {
            do throws(FileError) {
                try request.lock.wait()
                // An earlier end: the next request waits for the lock anew.
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
        /// Its time was over.
        case late
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

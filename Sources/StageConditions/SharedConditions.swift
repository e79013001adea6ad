import StageSystem
import Synchronization

/// State shared between a monitor's thread and its users.
final class SharedConditions: Sendable {
    /// Requests of the users to the thread.
    struct Requests {
        /// Set to end the thread.
        var isStopping = false
        /// Set to have the connectivity checked.
        var checksConnectivity = false
        /// Users that wait for newly read conditions.
        var readers: [CheckedContinuation<Conditions, Never>] = []
    }

    private struct State {
        var current: Conditions
        var requests = Requests()
        var settling: [CheckedContinuation<Conditions, Never>] = []
        var isSettled = false
        var hasEnded = false
        var streams: [Int: AsyncStream<Conditions>.Continuation] = [:]
        var streamCount = 0
    }

    private let state: Mutex<State>
    /// Signal that wakes the thread.
    let signal: WakeSignal

    init(_ conditions: Conditions) throws(FileError) {
        signal = try WakeSignal()
        state = Mutex(State(current: conditions))
    }

    /// Current conditions, after debouncing.
    var current: Conditions { state.withLock { $0.current } }

    /// Adds a request, and wakes the thread.
    func request(_ change: (inout Requests) -> Void) {
        state.withLock { change(&$0.requests) }
        signal.raise()
    }

    /// Requests newly read conditions; resumes `reader` at once if the thread has ended.
    func requestReading(_ reader: CheckedContinuation<Conditions, Never>) {
        let ended = state.withLock { state -> Conditions? in
            if state.hasEnded { return state.current }
            state.requests.readers.append(reader)
            return nil
        }
        if let ended { reader.resume(returning: ended) } else { signal.raise() }
    }

    /// Resumes `waiter` once the first readings are complete.
    func awaitSettling(_ waiter: CheckedContinuation<Conditions, Never>) {
        let settled = state.withLock { state -> Conditions? in
            if state.isSettled || state.hasEnded { return state.current }
            state.settling.append(waiter)
            return nil
        }
        if let settled { waiter.resume(returning: settled) }
    }

    /// Returns a stream of conditions, which starts with the current ones.
    func subscribe() -> AsyncStream<Conditions> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: Conditions.self,
            bufferingPolicy: .bufferingNewest(1)
        )
        let (number, isOpen) = state.withLock { state in
            state.streamCount += 1
            continuation.yield(state.current)
            if !state.hasEnded { state.streams[state.streamCount] = continuation }
            return (state.streamCount, !state.hasEnded)
        }
        continuation.onTermination = { [weak self] _ in
            _ = self?.state.withLock { $0.streams.removeValue(forKey: number) }
        }
        if !isOpen { continuation.finish() }
        return stream
    }
}

/// Methods for the monitor's thread.
extension SharedConditions {
    /// Takes all requests.
    func takeRequests() -> Requests {
        state.withLock { state in
            defer { state.requests.readers.removeAll() }
            defer { state.requests.checksConnectivity = false }
            return state.requests
        }
    }

    /// Publishes changed conditions.
    func publish(_ conditions: Conditions) {
        state.withLock { state in
            state.current = conditions
            for stream in state.streams.values { stream.yield(conditions) }
        }
    }

    /// Marks the first readings as complete.
    func settle() {
        let (waiters, conditions) = state.withLock { state in
            defer { state.settling.removeAll() }
            state.isSettled = true
            return (state.settling, state.current)
        }
        for waiter in waiters { waiter.resume(returning: conditions) }
    }

    /// Ends all streams and waits.
    func end() {
        let (waiters, streams, conditions) = state.withLock { state in
            defer {
                state.settling.removeAll()
                state.requests.readers.removeAll()
                state.streams.removeAll()
            }
            state.hasEnded = true
            let waiters = state.settling + state.requests.readers
            return (waiters, Array(state.streams.values), state.current)
        }
        for waiter in waiters { waiter.resume(returning: conditions) }
        for stream in streams { stream.finish() }
    }
}

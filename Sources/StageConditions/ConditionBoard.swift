import StageSystem
import Synchronization

/// What the thread of a monitor and its users tell each other.
final class ConditionBoard: Sendable {
    /// What the users want of the thread.
    struct Requests {
        /// Whether the thread is to end.
        var isStopping = false
        /// Whether somebody is to look how far the network reaches.
        var checksConnectivity = false
        /// Who waits for conditions that are read now.
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
    /// What wakes the thread.
    let signal: WakeSignal

    init(_ conditions: Conditions) throws(FileError) {
        signal = try WakeSignal()
        state = Mutex(State(current: conditions))
    }

    /// What counts now.
    var current: Conditions { state.withLock { $0.current } }

    /// Leaves a request for the thread.
    func request(_ change: (inout Requests) -> Void) {
        state.withLock { change(&$0.requests) }
        signal.raise()
    }

    /// Leaves a request for conditions that are read now, unless the thread has ended.
    func requestReading(_ reader: CheckedContinuation<Conditions, Never>) {
        let ended = state.withLock { state -> Conditions? in
            if state.hasEnded { return state.current }
            state.requests.readers.append(reader)
            return nil
        }
        if let ended { reader.resume(returning: ended) } else { signal.raise() }
    }

    /// Resumes once the first readings are there.
    func awaitSettling(_ waiter: CheckedContinuation<Conditions, Never>) {
        let settled = state.withLock { state -> Conditions? in
            if state.isSettled || state.hasEnded { return state.current }
            state.settling.append(waiter)
            return nil
        }
        if let settled { waiter.resume(returning: settled) }
    }

    /// A stream of what counts, with what counts now as its first value.
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

/// What only the thread calls.
extension ConditionBoard {
    /// Takes the requests that were left.
    func takeRequests() -> Requests {
        state.withLock { state in
            defer { state.requests.readers.removeAll() }
            defer { state.requests.checksConnectivity = false }
            return state.requests
        }
    }

    /// Makes conditions known.
    func publish(_ conditions: Conditions) {
        state.withLock { state in
            state.current = conditions
            for stream in state.streams.values { stream.yield(conditions) }
        }
    }

    /// Says that the first readings are there.
    func settle() {
        let (waiters, conditions) = state.withLock { state in
            defer { state.settling.removeAll() }
            state.isSettled = true
            return (state.settling, state.current)
        }
        for waiter in waiters { waiter.resume(returning: conditions) }
    }

    /// Says that nothing comes any more.
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

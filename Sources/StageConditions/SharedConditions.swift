import StageSystem
import Synchronization

/// State shared between a monitor's thread and its users.
final class SharedConditions: Sendable {
    private struct State {
        var current = Conditions.unknown
        var isStopping = false
        var settling: [CheckedContinuation<Conditions, Never>] = []
        var isSettled = false
        var hasEnded = false
        var streams: [Int: AsyncStream<Conditions>.Continuation] = [:]
        var streamCount = 0
    }

    private let state = Mutex(State())
    /// Signal that wakes the thread.
    let signal: WakeSignal
    /// Network changes after which hosts may be reachable that were not before.
    let networkChanges: AsyncStream<Void>
    private let networkChange: AsyncStream<Void>.Continuation

    init() throws(FileError) {
        signal = try WakeSignal()
        (networkChanges, networkChange) = AsyncStream.makeStream(
            of: Void.self,
            bufferingPolicy: .bufferingNewest(1)
        )
    }

    /// Current conditions, after debouncing.
    var current: Conditions { state.withLock { $0.current } }

    /// Asks the thread to end.
    func requestEnd() {
        state.withLock { $0.isStopping = true }
        signal.raise()
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
    /// Set once the thread is asked to end.
    var isStopping: Bool { state.withLock { $0.isStopping } }

    /// Publishes changed conditions.
    func publish(_ conditions: Conditions) {
        state.withLock { state in
            state.current = conditions
            for stream in state.streams.values { stream.yield(conditions) }
        }
    }

    /// Reports a change of the network.
    func reportNetworkChange() { networkChange.yield() }

    /// Marks the first readings as complete.
    func completeFirstReadings() {
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
                state.streams.removeAll()
            }
            state.hasEnded = true
            return (state.settling, Array(state.streams.values), state.current)
        }
        for waiter in waiters { waiter.resume(returning: conditions) }
        for stream in streams { stream.finish() }
        networkChange.finish()
    }
}

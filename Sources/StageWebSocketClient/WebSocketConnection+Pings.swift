import StageWebSocket
import Synchronization

extension WebSocketConnection {
    /// State of a ping.
    enum Ping {
        case sent
        case answered
        case awaited(Pinging)
    }

    /// Sends a ping, and returns its number for ``pong(to:)``, which the caller must call.
    func sendPing() async throws(WebSocketClientError) -> UInt64 {
        var number: UInt64 = 0
        do throws(WebSocketClientError) {
            try await writeExclusively { (state) throws(WebSocketError) in
                number = state.nextPing
                let payload = (0..<8).map { UInt8(truncatingIfNeeded: number >> ($0 * 8)) }
                try state.machine.ping(payload)
                state.nextPing += 1
                state.pings[number] = .sent
            }
        } catch {
            state.withLock { _ = $0.pings.removeValue(forKey: number) }
            throw error
        }
        return number
    }

    /// Waits for the pong to a ping, or to a later one.
    func pong(to number: UInt64) async throws(WebSocketClientError) {
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: Pinging) in
                let result = state.withLock { state -> Result<Void, WebSocketClientError>? in
                    if case .answered = state.pings[number] { return .success(()) }
                    switch state.end {
                    case .closed: return .failure(.webSocket(.closed))
                    case .failed(let error): return .failure(error)
                    case nil: break
                    }
                    if Task.isCancelled { return .failure(.cancelled) }
                    state.pings[number] = .awaited(continuation)
                    return nil
                }
                if let result { continuation.resume(returning: result) }
            }
        } onCancel: {
            let ping = state.withLock { $0.pings.removeValue(forKey: number) }
            if case .awaited(let pinging) = ping {
                pinging.resume(returning: .failure(.cancelled))
            }
        }
        state.withLock { _ = $0.pings.removeValue(forKey: number) }
        try result.get()
    }
}

extension WebSocketConnection.State {
    /// Processes a pong, and returns the tasks that waited for it.
    ///
    /// It also answers earlier pings: a peer may respond to the last of several only (RFC 6455, section 5.5.3).
    mutating func answerPings(_ payload: [UInt8]) -> [WebSocketConnection.Pinging] {
        let number = payload.reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        guard payload.count == 8, pings[number] != nil else { return [] }
        var waiting: [WebSocketConnection.Pinging] = []
        for earlier in pings.keys.sorted() where earlier <= number {
            if case .awaited(let pinging) = pings[earlier] { waiting.append(pinging) }
            pings[earlier] = .answered
        }
        return waiting
    }
}

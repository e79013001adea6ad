import StageWebSocket

extension WebSocketConnection {
    /// A view of a connection at one moment.
    struct Activity {
        /// Number of bytes received so far.
        var received: Int
        /// Whether a message waits to be taken.
        var isHeld: Bool
        /// Whether the connection has ended.
        var isOver: Bool
        /// Whether a task writes.
        var isWriting: Bool
    }

    /// Sends a ping whenever nothing came for a time, and ends the connection if nothing comes in the next one either.
    func keepAlive(every interval: Duration) async {
        var last = 0
        var isAsked = false
        let silence = WebSocketClientError.silent(limit: interval * 2)
        while true {
            do { try await Task.sleep(for: interval) } catch { return }
            let activity = activity
            if activity.isOver { return }
            // A message that is not taken keeps the next bytes from being read.
            if activity.isHeld || activity.received != last {
                (last, isAsked) = (activity.received, false)
                continue
            }
            if isAsked { return abort(silence) }
            isAsked = true
            // A server that does not take what is being sent needs no ping to be silent.
            if activity.isWriting { continue }
            _ = try? await withTimeLimit(interval) { [self] in
                try await withTaskCancellationHandler {
                    try await write(cancelled: silence) { (machine) throws(WebSocketError) in
                        try machine.ping()
                    }
                } onCancel: {
                    // A task that waits for its turn to write hears of no cancellation.
                    abort(silence)
                }
            }
        }
    }
}

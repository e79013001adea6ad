import StageWebSocket

extension WebSocketConnection {
    /// Snapshot of a connection's activity.
    struct Activity {
        /// Number of bytes received so far.
        var received: Int
        /// `true` if a message waits for its reader.
        var hasUnreadMessage: Bool
        /// `true` if the connection has ended.
        var isOver: Bool
        /// `true` while a task writes.
        var isWriting: Bool
    }

    /// Sends a ping after each interval without a received byte, and ends the connection if the next interval has
    /// none either.
    func keepAlive(every interval: Duration) async {
        var last = 0
        var isAsked = false
        let silence = WebSocketClientError.silent(limit: interval * 2)
        while true {
            do { try await Task.sleep(for: interval) } catch { return }
            let activity = activity
            if activity.isOver { return }
            // An unread message keeps the following bytes from being read.
            if activity.hasUnreadMessage || activity.received != last {
                (last, isAsked) = (activity.received, false)
                continue
            }
            if isAsked { return abort(silence) }
            isAsked = true
            // A pending write to the server replaces the ping.
            if activity.isWriting { continue }
            _ = try? await withTimeLimit(interval) { [self] in
                try await withTaskCancellationHandler {
                    try await write(cancelled: silence) { (machine) throws(WebSocketError) in
                        try machine.ping()
                    }
                } onCancel: {
                    // A task that waits for its turn to write does not notice cancellation.
                    abort(silence)
                }
            }
        }
    }
}

import StageSystem
import StageWebSocket

extension WebSocketConnection {
    /// Snapshot of a connection's activity.
    struct Activity {
        /// Number of bytes received so far.
        var received: Int
        /// Number of bytes that the kernel has accepted so far.
        var sent: Int
        /// `true` if a message waits for its reader.
        var hasUnreadMessage: Bool
        /// `true` if the connection has ended.
        var isOver: Bool
        /// `true` while a task writes.
        var isWriting: Bool

        /// Returns whether a long message has advanced since an earlier snapshot.
        ///
        /// Pings and other short messages show nothing: the kernel accepts them for a server that is gone, too.
        func isSending(since earlier: Int) -> Bool {
            isWriting && sent - earlier >= WebSocketConnection.pieceSize
        }
    }

    /// Sends a ping after each interval without a received byte, and ends the connection if the next interval has
    /// none either; a long message that the server takes counts as well.
    ///
    /// The time in which the machine is suspended is no silence of the server.
    func keepAlive(every interval: Duration) async {
        var last = (received: 0, sent: 0)
        var isAsked = false
        let silence = WebSocketClientError.silent(limit: interval * 2)
        while true {
            do { try await Task.sleep(for: interval.sleepable, clock: .suspending) } catch {
                return
            }
            let activity = activity
            if activity.isOver { return }
            // An unread message keeps the following bytes from being read.
            let isSending = activity.isSending(since: last.sent)
            last.sent = activity.sent
            if activity.hasUnreadMessage || activity.received != last.received || isSending {
                (last.received, isAsked) = (activity.received, false)
                continue
            }
            if isAsked { return abort(silence) }
            isAsked = true
            // A pending write to the server replaces the ping.
            if activity.isWriting { continue }
            // The ping may have to wait for a long message that has begun meanwhile.
            _ = try? await withTimeLimit(
                interval,
                since: { [self] in sentBytes },
                body: { [self] in
                    try await withTaskCancellationHandler {
                        try await write(cancelled: silence) { (machine) throws(WebSocketError) in
                            try machine.ping()
                        }
                    } onCancel: {
                        // A task that waits for earlier writers does not notice cancellation.
                        abort(silence)
                    }
                }
            )
        }
    }
}

/// Received durable events of a session that are not acknowledged yet.
///
/// An acknowledgement covers all events up to a sequence number, so an event that is still being processed delays the
/// acknowledgement of later ones.
package struct AcknowledgementWindow: Sendable {
    /// Sequence number of the last received event.
    package private(set) var received: Int64 = 0
    /// Sequence number of the last event that the daemon knows to be acknowledged.
    package private(set) var acknowledged: Int64 = 0
    private var inProgress: Set<Int64> = []
    /// Number of the session that the events belong to; `nil` before the first attachment.
    private var session: Int64?

    /// Creates a window without received events.
    package init() {}

    /// Notes a received event; returns `false` if it was received before.
    package mutating func receive(_ sequence: Int64) -> Bool {
        guard sequence > received else { return false }
        received = sequence
        inProgress.insert(sequence)
        return true
    }

    /// Takes back the receipt of the last event, so that it can be delivered again.
    package mutating func takeBack(_ sequence: Int64) {
        guard sequence == received else { return }
        received -= 1
        inProgress.remove(sequence)
    }

    /// Marks an event as processed.
    package mutating func finish(_ sequence: Int64) { inProgress.remove(sequence) }

    /// Notes an acknowledgement that the daemon has confirmed.
    package mutating func wasAcknowledged(_ sequence: Int64) {
        acknowledged = max(acknowledged, sequence)
    }

    /// Synchronises with the daemon's sequence numbers when a client attaches.
    ///
    /// A daemon that has lost its journal counts from 1 again, which the session's number reveals.
    package mutating func attach(lastEvent: Int64, acknowledged: Int64, session: Int64) {
        let isAnother = self.session != nil && session != self.session
        if isAnother || lastEvent < received { self = AcknowledgementWindow() }
        self.session = session
        received = max(received, acknowledged)
        self.acknowledged = max(self.acknowledged, acknowledged)
    }

    /// Sequence number up to which all events are processed.
    package var finished: Int64 { inProgress.min().map { $0 - 1 } ?? received }

    /// Sequence number to acknowledge; `nil` if the daemon already knows it.
    package var due: Int64? { finished > acknowledged ? finished : nil }
}

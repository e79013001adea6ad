/// The durable events of a session that were received, and of which it is not known yet whether they may
/// be forgotten.
///
/// An acknowledgement is of all events up to one, so an event that is still in work holds back those
/// after it.
public struct AcknowledgementWindow: Sendable {
    /// The last event that was received.
    public private(set) var received: Int64 = 0
    /// The last event that the daemon knows to be taken in.
    public private(set) var acknowledged: Int64 = 0
    private var inWork: Set<Int64> = []
    /// The number of the session that the events are of, where the daemon tells it.
    private var session: Int64?

    /// Creates the window of a client that has received nothing.
    public init() {}

    /// Takes an event in; returns `false` if it was before.
    public mutating func receive(_ sequence: Int64) -> Bool {
        guard sequence > received else { return false }
        received = sequence
        inWork.insert(sequence)
        return true
    }

    /// Takes back the receipt of the last event, which is to be delivered again.
    public mutating func release(_ sequence: Int64) {
        guard sequence == received else { return }
        received -= 1
        inWork.remove(sequence)
    }

    /// Takes in that everything was done for an event.
    public mutating func finish(_ sequence: Int64) { inWork.remove(sequence) }

    /// Takes in what the daemon says that it was told.
    public mutating func wasAcknowledged(_ sequence: Int64) {
        acknowledged = max(acknowledged, sequence)
    }

    /// Takes in the numbers of the daemon when a client attaches.
    ///
    /// A daemon that lost its records counts from the beginning again, which the number of the session shows.
    public mutating func attach(lastEvent: Int64, acknowledged: Int64, session: Int64? = nil) {
        let isAnother = session != nil && self.session != nil && session != self.session
        if isAnother || lastEvent < received { self = AcknowledgementWindow() }
        self.session = session ?? self.session
        received = max(received, acknowledged)
        self.acknowledged = max(self.acknowledged, acknowledged)
    }

    /// The last event that may be forgotten, with all before it.
    public var finished: Int64 { inWork.min().map { $0 - 1 } ?? received }

    /// What the daemon is to be told; `nil` if it knows.
    public var due: Int64? { finished > acknowledged ? finished : nil }

    /// Whether nothing is in work.
    public var isIdle: Bool { inWork.isEmpty }
}

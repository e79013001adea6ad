/// Tracks the delivery of the events that are older than the session object, whose end the delegate is told.
struct EventBacklog {
    private enum State {
        /// The daemon has not reported their number yet.
        case unknown
        /// They end with this event.
        case upTo(Int64)
        /// There were none, or the delegate was told.
        case over
    }

    private var state = State.unknown
    private var delivered: Int64 = 0

    /// Records, the first time, the daemon's last event.
    ///
    /// A process that the daemon has started is told even if there are none, since it waits for that before it ends.
    mutating func begin(lastEvent: Int64, acknowledged: Int64, isLaunched: Bool) {
        guard case .unknown = state else { return }
        delivered = acknowledged
        state = isLaunched || lastEvent > acknowledged ? .upTo(lastEvent) : .over
    }

    /// Records that the events up to a number are delivered; returns `true` once, when those are all.
    mutating func deliver(upTo sequence: Int64 = 0) -> Bool {
        delivered = max(delivered, sequence)
        guard case .upTo(let last) = state, delivered >= last else { return false }
        state = .over
        return true
    }
}

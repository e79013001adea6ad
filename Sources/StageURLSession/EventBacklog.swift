/// The events that had happened before a session was made, of which the delegate is told that they are delivered.
struct EventBacklog {
    private enum State {
        /// The daemon has not said yet how many there are.
        case unknown
        /// They end with this event.
        case upTo(Int64)
        /// There were none, or the delegate was told.
        case over
    }

    private var state = State.unknown
    private var delivered: Int64 = 0

    /// Takes in, the first time, how many events the daemon has.
    ///
    /// A process that the daemon has started is told even if there are none, since it waits for that with its end.
    mutating func begin(lastEvent: Int64, acknowledged: Int64, isLaunched: Bool) {
        guard case .unknown = state else { return }
        delivered = acknowledged
        state = isLaunched || lastEvent > acknowledged ? .upTo(lastEvent) : .over
    }

    /// Takes in that the events up to a number are delivered; returns `true` once, when those are all.
    mutating func deliver(upTo sequence: Int64 = 0) -> Bool {
        delivered = max(delivered, sequence)
        guard case .upTo(let last) = state, delivered >= last else { return false }
        state = .over
        return true
    }
}

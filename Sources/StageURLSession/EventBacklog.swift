/// Detects the delivery of the last event that the daemon had stored before the session object was created.
struct EventBacklog {
    private enum State {
        /// The daemon has not reported the number of the last such event yet.
        case unknown
        /// The number of the last such event, which is not delivered yet.
        case upTo(Int64)
        /// All are delivered, or there were none.
        case over
    }

    private var state = State.unknown
    private var delivered: Int64 = 0

    /// Starts to wait for the event with the number `lastEvent`; only the first call has an effect.
    ///
    /// - Parameters:
    ///   - lastEvent: The number of the last event that the daemon has stored.
    ///   - acknowledged: The number of the last acknowledged event.
    ///   - isLaunched: `true` if the daemon has started this process: ``deliver(upTo:)`` then returns `true` once even if
    ///     there are no such events, since the process ends only after that.
    mutating func begin(lastEvent: Int64, acknowledged: Int64, isLaunched: Bool) {
        guard case .unknown = state else { return }
        delivered = acknowledged
        state = isLaunched || lastEvent > acknowledged ? .upTo(lastEvent) : .over
    }

    /// Records that the events up to a number are delivered; returns `true` once, when the last one is.
    mutating func deliver(upTo sequence: Int64 = 0) -> Bool {
        delivered = max(delivered, sequence)
        guard case .upTo(let last) = state, delivered >= last else { return false }
        state = .over
        return true
    }
}

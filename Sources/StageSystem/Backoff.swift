/// Delay before the next connection attempt, which doubles until a connection has lasted for ``stableTime``.
package struct Backoff: Sendable {
    /// The first delay.
    package static let shortest = Duration.milliseconds(100)

    /// The longest delay.
    package let longest: Duration
    /// The time after which a connection counts as stable, so that the delays start again at ``shortest``.
    package let stableTime: Duration
    private var delay = Self.shortest

    /// Creates the backoff of a client that has not connected yet.
    package init(longest: Duration, stableTime: Duration) {
        self.longest = longest
        self.stableTime = stableTime
    }

    /// Returns the delay before the next attempt; `lasted` is the duration of the last connection, zero if it failed.
    package mutating func next(afterLasting lasted: Duration = .zero) -> Duration {
        if lasted >= stableTime { delay = Self.shortest }
        defer { delay = min(delay * 2, longest) }
        return delay
    }
}

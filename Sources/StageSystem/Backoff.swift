/// Delay before the next connection attempt, which doubles until a connection has lasted for ``goodTime``.
public struct Backoff: Sendable {
    /// The first delay.
    public static let shortest = Duration.milliseconds(100)

    /// The longest delay.
    public let longest: Duration
    /// The time after which a connection counts as stable, so that the delays start again at ``shortest``.
    public let goodTime: Duration
    private var delay = Self.shortest

    /// Creates the backoff of a client that has not connected yet.
    public init(longest: Duration, goodTime: Duration) {
        self.longest = longest
        self.goodTime = goodTime
    }

    /// Returns the delay before the next attempt, after a connection of the duration `lasted`; zero for a failed attempt.
    public mutating func next(afterLasting lasted: Duration = .zero) -> Duration {
        if lasted >= goodTime { delay = Self.shortest }
        defer { delay = min(delay * 2, longest) }
        return delay
    }
}

/// Delay before another attempt to connect, which doubles until a connection has lasted.
public struct Backoff: Sendable {
    /// The first delay.
    public static let shortest = Duration.milliseconds(100)

    /// The longest delay.
    public let longest: Duration
    /// The time that a connection must last for the delays to begin anew.
    public let goodTime: Duration
    private var delay = Self.shortest

    /// Creates the backoff of a client that has not connected yet.
    public init(longest: Duration, goodTime: Duration) {
        self.longest = longest
        self.goodTime = goodTime
    }

    /// Returns the delay after a connection that lasted so long, zero for an attempt that failed.
    public mutating func next(afterLasting lasted: Duration = .zero) -> Duration {
        if lasted >= goodTime { delay = Self.shortest }
        defer { delay = min(delay * 2, longest) }
        return delay
    }
}

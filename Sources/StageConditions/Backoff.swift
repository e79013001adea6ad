/// How long to wait before the bus is connected to again.
struct Backoff {
    /// The first wait.
    static let shortest = Duration.milliseconds(100)
    /// The longest wait.
    static let longest = Duration.seconds(300)
    /// How long a connection has to last to count as a good one.
    static let goodTime = Duration.seconds(60)

    private var wait = Self.shortest

    /// The wait after a connection that lasted so long: twice the one before, if it was no good one.
    mutating func next(afterLasting lasted: Duration) -> Duration {
        if lasted >= Self.goodTime { wait = Self.shortest }
        defer { wait = min(wait * 2, Self.longest) }
        return wait
    }
}

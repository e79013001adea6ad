/// How long is waited before the daemon is tried again.
struct Backoff {
    private static let first = Duration.milliseconds(100)
    /// The longest wait.
    static let last = Duration.seconds(10)

    private var current = Backoff.first

    /// The time to wait this time: twice as long each further time, ten seconds at most.
    mutating func next() -> Duration {
        defer { current = min(current * 2, Self.last) }
        return current
    }

    /// Begins anew, after an attempt that succeeded.
    mutating func reset() { current = Self.first }
}

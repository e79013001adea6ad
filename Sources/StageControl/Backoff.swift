/// How long is waited before the daemon is tried again.
public struct Backoff: Sendable {
    private static let first = Duration.milliseconds(100)
    /// The longest wait.
    public static let last = Duration.seconds(10)

    private var current = Backoff.first

    /// Creates the backoff of a client that has not tried yet.
    public init() {}

    /// The time to wait this time: twice as long each further time, ten seconds at most.
    public mutating func next() -> Duration {
        defer { current = min(current * 2, Self.last) }
        return current
    }

    /// Begins anew, after an attempt that succeeded.
    public mutating func reset() { current = Self.first }
}

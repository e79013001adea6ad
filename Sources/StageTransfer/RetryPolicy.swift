/// Schedule of retries: exponential backoff with full jitter.
///
/// Before the n-th delay, every mirror has failed n times in a row without new durable bytes. The delay is random,
/// below `base` × 2ⁿ⁻¹ and at most `cap`.
public struct RetryPolicy: Equatable, Sendable {
    /// Number of consecutive failures of all mirrors that ends the transfer.
    public var maximumAttempts: Int
    /// Upper bound of the first delay.
    public var base: Duration
    /// Upper bound of every delay.
    public var cap: Duration
    /// Time without new durable bytes after which the transfer ends; a delay that would end later ends it at once.
    public var retryTimeLimit: Duration

    /// Longest delay that a server may ask for; a longer one ends the transfer at once, unless another mirror is
    /// left.
    public var maximumRetryAfter: Duration

    /// Creates a policy; by default 8 attempts within a day, 2 seconds doubled up to an hour.
    public init(
        maximumAttempts: Int = 8,
        base: Duration = .seconds(2),
        cap: Duration = .seconds(3600),
        retryTimeLimit: Duration = .seconds(24 * 3600),
        maximumRetryAfter: Duration = .seconds(24 * 3600)
    ) {
        self.maximumAttempts = maximumAttempts
        self.base = base
        self.cap = cap
        self.retryTimeLimit = retryTimeLimit
        self.maximumRetryAfter = maximumRetryAfter
    }

    /// Returns the delay after the n-th consecutive failure, given a random number in 0..<1.
    func backoff(afterFailure count: Int, random: Double) -> Duration {
        let doublings = min(max(count - 1, 0), 40)
        let ceiling = min(cap, base * (1 << doublings))
        return ceiling * random
    }
}

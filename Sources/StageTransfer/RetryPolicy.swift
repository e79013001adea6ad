/// When a failed transfer is tried again: exponential backoff with full jitter.
///
/// Before the n-th wait the engine has tried every mirror n times in a row without making new bytes
/// durable; it then waits a random time below `base` × 2ⁿ⁻¹, `cap` at most.
public struct RetryPolicy: Equatable, Sendable {
    /// How many failures in a row, each of all mirrors, end the transfer.
    public var maximumAttempts: Int
    /// What the first wait stays below.
    public var base: Duration
    /// What every wait stays below.
    public var cap: Duration
    /// How long a transfer goes on without new durable bytes; a wait that would end later ends it at
    /// once.
    public var giveUpAfter: Duration

    /// The longest pause that a server may ask for; one that asks for longer ends the transfer at once,
    /// unless another mirror can be asked.
    public var longestPause: Duration

    /// Creates a policy; by default 8 attempts within a day, 2 seconds doubled up to an hour.
    public init(
        maximumAttempts: Int = 8,
        base: Duration = .seconds(2),
        cap: Duration = .seconds(3600),
        giveUpAfter: Duration = .seconds(24 * 3600),
        longestPause: Duration = .seconds(24 * 3600)
    ) {
        self.maximumAttempts = maximumAttempts
        self.base = base
        self.cap = cap
        self.giveUpAfter = giveUpAfter
        self.longestPause = longestPause
    }

    /// How long to wait after the n-th failure in a row, given a random number from 0 up to 1.
    func backoff(afterFailure count: Int, random: Double) -> Duration {
        let doublings = min(max(count - 1, 0), 40)
        let ceiling = min(cap, base * (1 << doublings))
        return ceiling * random
    }
}

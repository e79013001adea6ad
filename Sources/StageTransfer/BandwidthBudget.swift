/// A token bucket that limits the bytes which all transfers together receive.
///
/// The last buffer taken may overdraw it.
///
/// Used on the engine's thread only.
final class BandwidthBudget {
    private let rate: Double
    private var available: Double
    private var last: SuspendingClock.Instant

    /// Creates a budget of `bytesPerSecond`, with bursts of up to an eighth of that.
    init(bytesPerSecond: Int64, now: SuspendingClock.Instant) {
        rate = Double(max(bytesPerSecond, 1))
        available = rate / 8
        last = now
    }

    /// Returns whether bytes may be received now.
    func isOpen(at now: SuspendingClock.Instant) -> Bool {
        available = min(rate / 8, available + rate * ((now - last) / .seconds(1)))
        last = now
        return available > 0
    }

    /// Subtracts received bytes.
    func take(_ count: Int) { available -= Double(count) }
}

/// The bytes that may be received now under a limit for all transfers together: a token bucket that
/// may run into debt by the last buffer taken.
///
/// It belongs to the engine's thread.
final class BandwidthBudget {
    private let rate: Double
    private var available: Double
    private var last: ContinuousClock.Instant

    /// Creates a budget of so many bytes a second, of which an eighth may come at once.
    init(bytesPerSecond: Int64, now: ContinuousClock.Instant) {
        rate = Double(max(bytesPerSecond, 1))
        available = rate / 8
        last = now
    }

    /// Whether bytes may be taken now.
    func isOpen(at now: ContinuousClock.Instant) -> Bool {
        available = min(rate / 8, available + rate * ((now - last) / .seconds(1)))
        last = now
        return available > 0
    }

    /// Takes bytes.
    func take(_ count: Int) { available -= Double(count) }
}

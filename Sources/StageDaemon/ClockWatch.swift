import FoundationEssentials
import Glibc

/// Time of the wall clock and time since boot, read together.
struct ClockReading: Sendable {
    var date: Date
    /// Seconds since boot, including time in suspend (`CLOCK_BOOTTIME`).
    var sinceBoot: Double

    /// Current reading.
    static var now: ClockReading {
        var time = timespec()
        unsafe clock_gettime(CLOCK_BOOTTIME, &time)
        let sinceBoot = Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
        return ClockReading(date: .now, sinceBoot: sinceBoot)
    }
}

/// Detector of discontinuous changes of the wall clock, as by a person or by the first answer of a time server; a pure
/// value.
///
/// Gradual corrections (adjtime(3)) and suspend change both clocks equally.
struct ClockWatch: Sendable {
    /// Smallest change in seconds that counts; smaller ones add up.
    static let threshold = 5.0
    /// Date of the boot by the wall clock.
    private var boot: Date

    init(_ reading: ClockReading) { boot = reading.date - reading.sinceBoot }

    /// Returns the change of the wall clock in seconds since the last change that was returned; `nil` if there is none.
    mutating func change(at reading: ClockReading) -> Double? {
        let current = reading.date - reading.sinceBoot
        let change = current.timeIntervalSince(boot)
        guard abs(change) >= Self.threshold else { return nil }
        boot = current
        return change
    }
}

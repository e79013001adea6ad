import CLinux

/// The clock of the machine.
public enum SystemClock {
    /// Whether a time source keeps the clock, as the kernel was told (adjtimex(2)); `nil` where the kernel does not say.
    public static var isSynchronized: Bool? {
        let answer = stage_is_clock_synchronized()
        return answer < 0 ? nil : answer == 1
    }
}

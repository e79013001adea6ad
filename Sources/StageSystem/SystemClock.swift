import CLinux

/// The clock of the machine.
package enum SystemClock {
    /// True if a time source synchronizes the clock, according to adjtimex(2); `nil` if the kernel does not report it.
    package static var isSynchronized: Bool? {
        let answer = stage_is_clock_synchronized()
        return answer < 0 ? nil : answer == 1
    }
}

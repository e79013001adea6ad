import FoundationEssentials

/// Decides for which date the daemon's timer is set, so that no date is missed and none fires the timer twice.
///
/// The alarm of the timer starts the handlers whose delays have ended, and runs the scheduler. A slow scheduler runs later than that.
struct AlarmSchedule: Equatable, Sendable {
    /// Next dates that change a decision by time alone.
    struct Dates: Equatable, Sendable {
        /// The next date that a run of the scheduler processes.
        var scheduler: Date?
        /// The next date that the alarm itself processes.
        var other: Date?

        /// The earlier date.
        var first: Date? { [scheduler, other].compactMap(\.self).min() }
    }

    /// Date for which the timer is set, until its alarm is processed; `nil` for none.
    private(set) var date: Date?
    /// Set if the timer ignores a date of the scheduler that has passed, until the scheduler runs.
    private(set) var isHeld = false

    /// Changes the date.
    ///
    /// - Parameters:
    ///   - dates: The next dates.
    ///   - isSchedulerDelayed: `true` if the scheduler cannot run yet.
    ///   - now: The current time.
    /// - Returns: Whether the timer is to be set to ``date``. It is not if the date has passed and the alarm has not been processed:
    ///   with a later date, the alarm might never come, and a launch that waited for it would be lost.
    mutating func set(_ dates: Dates, isSchedulerDelayed: Bool, at now: Date) -> Bool {
        if let date, date <= now { return false }
        if isSchedulerDelayed, let passed = dates.scheduler, passed <= now {
            // The timer would fire again and again until the scheduler runs.
            isHeld = true
            date = dates.other
        } else {
            date = dates.first
        }
        return true
    }

    /// Processes an alarm: the timer is no longer set.
    mutating func alarmArrived() { date = nil }

    /// Processes a run of the scheduler.
    ///
    /// - Returns: Whether the timer has ignored a date, so that the alarm is to be given now: handlers may wait for the same date,
    ///   such as the next check of a full disk.
    mutating func schedulerRuns() -> Bool {
        defer { isHeld = false }
        return isHeld
    }
}

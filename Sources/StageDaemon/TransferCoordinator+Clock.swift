import FoundationEssentials
import Logging
import StageSystem

/// Work that becomes due by time alone.
extension TransferCoordinator {
    /// Processes everything that becomes due by time alone, until the task is cancelled.
    func watchClock() async {
        for await _ in alarms {
            alarmSchedule.alarmArrived()
            _ = readClock()
            retryDate = nil
            await recordClockChange()
            await recordEndings()
            await rescheduleAll()
            await removeExpiredResumeData()
            await expire()
            state.handOverAll(at: readClock())
            for id in state.sessions.keys.sorted() { await launchIfNeeded(id) }
            runScheduler()
            // If the scheduler is delayed, only this sets the timer to other dates.
            setTimer()
        }
    }

    /// Sets the timer to the next date that changes a task or session by time alone.
    ///
    /// - Parameter date: The time of the decision that waits for such a date; `nil` for the current time.
    func setTimer(at date: Date? = nil) {
        let now = date ?? readClock()
        let mustRetry = !unrecorded.isEmpty || !unscheduled.isEmpty || unrecordedClockChange != 0
        // Set at each run of the scheduler: an earlier date stays, however many runs follow.
        retryDate = mustRetry ? retryDate ?? now + TransferState.diskWait : nil
        var dates = state.nextDates(at: now)
        dates.other = [dates.other, retryDate].compactMap(\.self).min()
        let isDelayed = isSchedulerDelayed || !hasStarted
        guard alarmSchedule.set(dates, isSchedulerDelayed: isDelayed, at: now) else { return }
        timer.set(alarmSchedule.date)
    }
}

/// Changes of the wall clock.
extension TransferCoordinator {
    /// Returns the current time.
    ///
    /// If the clock was set, first moves all dates by the change, so that the result can be compared with them: a clock
    /// that jumps forward ends no task before its time, and one that is set back delays none.
    func readClock() -> Date {
        let reading = ClockReading.now
        if let change = clock.change(at: reading) {
            state.clockChanged(by: change)
            retryDate = retryDate.map { $0 + change }
            unrecordedClockChange += change
            logger.notice("The clock was set", metadata: ["clock.change": "\(change) s"])
        }
        return reading.date
    }

    /// Moves the dates in the journal if the clock was set, before tasks are read from it or written to it: dates of
    /// tasks that are created by the new clock must not be moved.
    func synchronizeClock() async {
        _ = readClock()
        await recordClockChange()
    }

    /// Moves the dates in the journal by a change of the clock; tries again later if the journal cannot be written.
    func recordClockChange() async {
        let change = unrecordedClockChange
        guard change != 0 else { return }
        unrecordedClockChange = 0
        do throws(DaemonError) {
            try await journal.moveDates(by: change)
        } catch {
            unrecordedClockChange += change
            logger.error(
                "A change of the clock was not recorded",
                metadata: ["error": "\(error)"]
            )
        }
    }

    /// Moves the dates in the journal if the clock is behind the journal's last change.
    ///
    /// A machine without a battery-backed clock starts in the past, and its clock is set later: the two changes undo
    /// each other.
    func adjustDates(lastChange: Date?) async throws(DaemonError) {
        guard let lastChange else { return }
        let change = readClock().timeIntervalSince(lastChange)
        guard change <= -ClockWatch.threshold else { return }
        logger.notice(
            "The clock is behind the journal",
            metadata: ["clock.change": "\(change) s"]
        )
        try await journal.moveDates(by: change)
    }
}

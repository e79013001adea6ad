import FoundationEssentials
import Testing

@testable import StageDaemon

struct AlarmScheduleTests {
    private let now = Date(timeIntervalSince1970: 1_800_000_000)

    private func dates(scheduler: Double?, other: Double?) -> AlarmSchedule.Dates {
        AlarmSchedule.Dates(
            scheduler: scheduler.map { now + $0 },
            other: other.map { now + $0 }
        )
    }

    @Test(arguments: [-1.0, 0]) func aPassedDateWaitsForTheDelayedScheduler(_ passed: Double) {
        var schedule = AlarmSchedule()
        let dates = dates(scheduler: passed, other: 60)
        var isSet = schedule.set(dates, isSchedulerDelayed: true, at: now)
        #expect(isSet && schedule.date == now + 60 && schedule.isHeld)
        // The run gives one alarm, for launches that waited for the same date.
        let alarms = [schedule.schedulerRuns(), schedule.schedulerRuns()]
        #expect(alarms == [true, false])
        isSet = schedule.set(
            self.dates(scheduler: 5, other: 60),
            isSchedulerDelayed: false,
            at: now
        )
        #expect(isSet && schedule.date == now + 5 && !schedule.isHeld)
    }

    @Test func aLaterDateOfADelayedSchedulerFiresTheTimer() {
        var schedule = AlarmSchedule()
        let dates = dates(scheduler: 5, other: 60)
        let isSet = schedule.set(dates, isSchedulerDelayed: true, at: now)
        #expect(isSet && schedule.date == now + 5 && !schedule.isHeld)
        let hasAlarm = schedule.schedulerRuns()
        #expect(!hasAlarm)
    }

    /// The next dates leave out a launch whose date has passed, because it may wait for another handler.
    @Test(arguments: [true, false]) func aDateThatHasPassedStaysUntilItsAlarm(_ isDelayed: Bool) {
        var schedule = AlarmSchedule()
        var isSet = schedule.set(
            dates(scheduler: 90, other: 60),
            isSchedulerDelayed: isDelayed,
            at: now
        )
        #expect(isSet && schedule.date == now + 60)
        let next = dates(scheduler: 90, other: nil)
        isSet = schedule.set(next, isSchedulerDelayed: isDelayed, at: now + 60.1)
        #expect(!isSet && schedule.date == now + 60)
        schedule.alarmArrived()
        isSet = schedule.set(next, isSchedulerDelayed: isDelayed, at: now + 60.1)
        #expect(isSet && schedule.date == now + 90)
    }

    @Test func theTimerIsSetToNoDateIfNothingBecomesDue() {
        var schedule = AlarmSchedule()
        var isSet = schedule.set(
            dates(scheduler: 5, other: nil),
            isSchedulerDelayed: false,
            at: now
        )
        #expect(isSet && schedule.date == now + 5)
        isSet = schedule.set(dates(scheduler: nil, other: nil), isSchedulerDelayed: false, at: now)
        #expect(isSet && schedule.date == nil)
    }
}

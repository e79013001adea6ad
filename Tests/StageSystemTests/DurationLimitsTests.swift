import StageSystem
import Testing

@Suite struct DurationLimitsTests {
    private static let milliseconds: [(Duration, CInt)] = [
        (.zero, 0), (.seconds(-1), 0), (.seconds(Int64.min), 0), (.nanoseconds(1), 1),
        (.milliseconds(1), 1), (.microseconds(1001), 2), (.milliseconds(1500), 1500),
        (.milliseconds(Int64(CInt.max)), CInt.max),
        (.milliseconds(Int64(CInt.max)) + .nanoseconds(1), CInt.max),
        (.seconds(Int64.max), CInt.max), (.seconds(Int64.max) * 2, CInt.max),
    ]

    @Test(arguments: milliseconds)
    func millisecondsAreRoundedUpAndLimited(_ duration: Duration, to expected: CInt) {
        #expect(duration.wholeMilliseconds == expected)
    }

    private static let sleeps: [(Duration, Duration)] = [
        (.zero, .zero), (.seconds(-1), .zero), (.nanoseconds(1), .nanoseconds(1)),
        (.seconds(1_000_000_000), .seconds(1_000_000_000)),
        (.seconds(1_000_000_001), .seconds(1_000_000_000)),
        (.seconds(Int64.max), .seconds(1_000_000_000)), (.seconds(Int64.min), .zero),
    ]

    @Test(arguments: sleeps)
    func aTaskCanSleepForEachDuration(_ duration: Duration, as expected: Duration) {
        #expect(duration.sleepable == expected)
    }

    @Test func aConditionIsAwaitedForAnyTime() {
        let condition = ConditionVariable(0)
        #expect(condition.wait(atMost: .seconds(Int64.max)) { $0 == 0 ? 1 : nil } == 1)
        #expect(condition.wait(atMost: .seconds(-1)) { $0 == 0 ? nil : 1 } == nil)
    }
}

import StageTesting
import Synchronization
import Testing

@testable import StageSystem

struct ThrottleTests {
    private final class Reports: Sendable {
        private let list = Mutex<[Int]>([])
        var all: [Int] { list.withLock(\.self) }
        func add(_ number: Int) { list.withLock { $0.append(number) } }

        private let isAdding = Atomic(false)

        /// Adds 0, or -1 if another thread is in this function.
        func addAlone() {
            let isAlone = !isAdding.exchange(true, ordering: .acquiring)
            add(isAlone ? 0 : -1)
            isAdding.store(false, ordering: .releasing)
        }
    }

    private let reports = Reports()

    @Test func theLastReportIsMadeAndEarlierOnesAreLeftOut() async throws {
        let throttle = Throttle(interval: .milliseconds(500))
        for number in 1...100 { throttle.run { [reports] in reports.add(number) } }
        try await poll("the last one is not made") { reports.all.last == 100 }
        #expect(reports.all.first == 1)
        #expect(reports.all.count < 100)
    }

    @Test func aReportAfterTheIntervalIsMadeAtOnce() async throws {
        let throttle = Throttle(interval: .milliseconds(20))
        throttle.run { [reports] in reports.add(1) }
        let (clock, start) = (ContinuousClock(), ContinuousClock.now)
        try await poll { clock.now > start + .milliseconds(20) }
        throttle.run { [reports] in reports.add(2) }
        #expect(reports.all == [1, 2])
    }

    @Test func thePendingReportIsMadeAtTheEndAndNoneAfterIt() {
        let throttle = Throttle(interval: .seconds(3600))
        for number in 1...3 { throttle.run { [reports] in reports.add(number) } }
        #expect(reports.all == [1])
        throttle.end()
        #expect(reports.all == [1, 3])
        throttle.run { [reports] in reports.add(4) }
        throttle.end()
        #expect(reports.all == [1, 3])
    }

    @Test func noReportIsMadeMeanwhile() async throws {
        let throttle = Throttle(interval: .milliseconds(300))
        throttle.run { [reports] in reports.add(0) }
        // Repeats until the second report of a pair is pending, since a slow machine may miss this.
        var (before, after): ([Int], [Int])
        var number = 0
        repeat {
            number += 2
            for number in [number, number + 1] { throttle.run { [reports] in reports.add(number) } }
            (before, after) = throttle.withoutReports { [reports] in
                let before = reports.all
                let start = ContinuousClock.now
                while ContinuousClock.now < start + .milliseconds(400) {}
                return (before, reports.all)
            }
            #expect(before == after)
        } while before.last == number + 1
        try await poll { reports.all.last == number + 1 }
    }

    @Test func reportsOfManyThreadsAreMadeOneAtATime() async {
        let throttle = Throttle(interval: .microseconds(1))
        await withTaskGroup(of: Void.self) { [reports] group in
            for _ in 0..<8 {
                group.addTask {
                    for _ in 0..<200 { throttle.run { reports.addAlone() } }
                }
            }
            await group.waitForAll()
        }
        throttle.end()
        #expect(!reports.all.contains(-1))
        #expect(!reports.all.isEmpty)
    }
}

import Testing

@testable import StageConditions

struct NetworkChangeDebouncerTests {
    /// Returns the seconds of the reports of changes at these seconds.
    private func reports(of changes: [Double], delay: Double = 5) -> [Double] {
        var debouncer = NetworkChangeDebouncer(delay: .seconds(delay))
        var reports: [Double] = []
        func take(until end: Duration?) {
            while let deadline = debouncer.deadline, end.map({ deadline <= $0 }) ?? true {
                let early = deadline - .milliseconds(1)
                if debouncer.takeReport(at: early) { reports.append(early / .seconds(1)) }
                if debouncer.takeReport(at: deadline) { reports.append(deadline / .seconds(1)) }
            }
        }
        for change in changes {
            take(until: .seconds(change))
            debouncer.add(at: .seconds(change))
        }
        take(until: nil)
        return reports
    }

    @Test func aNetworkThatReturnsInStepsIsReportedOnceAfterTheLast() {
        #expect(reports(of: []) == [])
        #expect(reports(of: [10]) == [15])
        #expect(reports(of: [10, 11, 14, 14.5]) == [19.5])
    }

    @Test func changesThatDoNotCeaseAreReportedNevertheless() {
        #expect(reports(of: (0..<9).map { Double($0) * 4 }) == [30, 40])
    }

    @Test func pausesGrowWhileChangesContinueAndAreShortAfterwards() {
        let changes = (0..<100).map { Double($0) * 20 }
        let found = reports(of: changes)
        let pauses = zip(found, found.dropFirst()).map { $1 - $0 }
        #expect(pauses.prefix(5) == [20, 20, 40, 80, 160])
        #expect(pauses.dropFirst(5).allSatisfy { $0 == 300 })
        #expect(reports(of: changes + [5000, 5010]).suffix(2) == [5005, 5015])
    }

    /// The second report doubles the pause, and the third comes ten minutes after it, or a second earlier.
    @Test func pausesAreShortAgainAfterTenMinutesWithoutAReport() {
        #expect(reports(of: [0, 10, 609, 615]) == [5, 15, 614, 654])
        #expect(reports(of: [0, 10, 610, 616]) == [5, 15, 615, 625])
    }

    @Test func withoutADelayAChangeIsReportedAtOnce() {
        #expect(reports(of: [10, 11], delay: 0) == [10, 20])
    }
}

import StageTransfer
import Testing

struct RepetitionFilterTests {
    @Test func aMessageThatRepeatsIsWrittenOncePerPeriodWithItsCount() {
        var filter = RepetitionFilter()
        var decisions: [RepetitionFilter.Decision] = []
        for second in 0..<30 { decisions.append(filter.decide("disk full", at: Double(second))) }
        #expect(decisions == [.write(leftOut: 0)] + Array(repeating: .leaveOut, count: 29))
        #expect(filter.decide("other", at: 30) == .write(leftOut: 0))
        #expect(filter.decide("disk full", at: RepetitionFilter.period - 0.1) == .leaveOut)
        #expect(filter.decide("disk full", at: RepetitionFilter.period) == .write(leftOut: 30))
        #expect(filter.decide("disk full", at: 2 * RepetitionFilter.period) == .write(leftOut: 0))
    }

    @Test func aMessageIsWrittenAgainAfterTheClockWasSetBack() {
        var filter = RepetitionFilter()
        #expect(filter.decide("disk full", at: 1_800_000_000) == .write(leftOut: 0))
        #expect(filter.decide("disk full", at: 1_800_000_001) == .leaveOut)
        #expect(filter.decide("disk full", at: 100) == .write(leftOut: 1))
        #expect(filter.decide("disk full", at: 101) == .leaveOut)
    }

    @Test func theMemoryOfMessagesIsBounded() {
        var filter = RepetitionFilter()
        for number in 0...RepetitionFilter.limit {
            #expect(filter.decide("\(number)", at: Double(number) / 1000) == .write(leftOut: 0))
        }
        #expect(filter.decide("0", at: 1) == .write(leftOut: 0))
        #expect(filter.decide("\(RepetitionFilter.limit)", at: 1) == .leaveOut)
    }
}

import StageSystem
import Testing

@Suite struct BackoffTests {
    @Test func delaysDoubleUntilAConnectionHasLasted() {
        var backoff = Backoff(longest: .seconds(10), stableTime: .seconds(60))
        let delays = (1...9).map { _ in backoff.next() }
        #expect(delays.prefix(3) == [.milliseconds(100), .milliseconds(200), .milliseconds(400)])
        #expect(delays.last == .seconds(10))
        #expect(backoff.next(afterLasting: .seconds(59)) == .seconds(10))
        #expect(backoff.next(afterLasting: .seconds(60)) == .milliseconds(100))
        #expect(backoff.next() == .milliseconds(200))
    }
}

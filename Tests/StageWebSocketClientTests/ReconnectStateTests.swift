import StageWebSocket
import Testing

@testable import StageWebSocketClient

/// The decision about the step after the end of a connection, as a value.
@Suite struct ReconnectStateTests {
    private static func state(
        _ change: (inout WebSocketReconnectPolicy) -> Void = { _ in }
    ) -> ReconnectState {
        var policy = WebSocketReconnectPolicy()
        change(&policy)
        return ReconnectState(policy)
    }

    @Test func aConnectionThatLastsRestartsTheTime() {
        var state = Self.state { $0.retryTimeLimit = .seconds(60) }
        let lasted = ReconnectState.End(reason: .lost, uptime: .seconds(30))
        #expect(
            state.handle(lasted, at: .seconds(100), random: 0)
                == .connect(after: .milliseconds(500))
        )
        #expect(state.failures == 0)
        #expect(state.timeLeft(at: .seconds(110)) == .seconds(50))
        let failed = ReconnectState.End(reason: .lost, uptime: .seconds(29))
        let last = WebSocketClientError.retriesExhausted(failures: 1, last: .lost)
        #expect(state.handle(failed, at: .seconds(160), random: 0) == .fail(last))
    }

    @Test(arguments: [(1, 500, 1000), (2, 1000, 2000), (6, 16000, 32000), (7, 30000, 60000)])
    func delaysAreBetweenHalfAndAllOfTheirCeiling(count: Int, shortest: Int, longest: Int) {
        let policy = WebSocketReconnectPolicy()
        let delays = [0, 1].map { policy.delay(afterFailures: count, random: $0) }
        #expect(delays == [.milliseconds(shortest), .milliseconds(longest)])
        #expect(policy.delay(afterFailures: .max, random: 1) == .seconds(60))
    }
}

import Testing

@testable import StageTransfer

struct MirrorHistoryTests {
    /// Users of a daemon can name any number of hosts, and each event of a transfer searches all of them.
    @Test func theHostsThatAreKnownAreLimited() {
        var history = MirrorHistory()
        let hosts = (0...MirrorHistory.maximumCount).map { "\($0).example" }
        for (index, host) in hosts.enumerated() {
            history.advance(to: .milliseconds(index))
            history.recordFailure(of: host)
            history.recordUnsafeRanges(of: host)
        }
        // The first one was replaced by the last.
        #expect(history.order([hosts[1], hosts[0]]) == [1, 0])
        #expect(history.order([hosts[1], hosts[2]]) == [0, 1])
        let allowed = hosts.filter { history.allowsRanges(from: $0) }
        #expect(allowed == [hosts[0]])
        history.recordSuccess(of: hosts[1])
        #expect(history.order([hosts[2], hosts[1]]) == [1, 0])
    }
}

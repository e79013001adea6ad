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

    @Test func aUsersHistoryIsSeparateAndLimited() {
        var histories = MirrorHistories()
        let hosts = (0...MirrorHistories.maximumCountPerUser).map { "\($0).example" }
        for (index, host) in hosts.enumerated() {
            histories.advance(to: .milliseconds(index))
            histories[1].recordUnsafeRanges(of: host)
            histories[nil].recordUnsafeRanges(of: host)
        }
        // A process that serves one user, whose number is `nil`, remembers more hosts.
        for (user, allowed) in [(1, [hosts[0]]), (2, hosts), (nil, [])] as [(UInt32?, [String])] {
            let found = hosts.filter { histories[user].allowsRanges(from: $0) }
            #expect(found == allowed)
        }
        histories.advance(to: .seconds(3700))
        let found = hosts.filter { histories[1].allowsRanges(from: $0) }
        #expect(found == hosts)
    }

    @Test func theUsersWithAHistoryAreLimited() {
        var histories = MirrorHistories()
        let users = 0...UInt32(MirrorHistories.maximumUserCount)
        for user in users {
            histories.advance(to: .milliseconds(Int(user)))
            histories[user].recordUnsafeRanges(of: "a.example")
            // A user without faults takes no place.
            histories[user + 1000].recordSuccess(of: "a.example")
        }
        // The first one was replaced by the last.
        let allowed = users.filter { histories[$0].allowsRanges(from: "a.example") }
        #expect(allowed == [0])
    }
}

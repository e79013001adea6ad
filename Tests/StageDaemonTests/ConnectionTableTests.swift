import Testing

@testable import StageDaemon

/// The connections that stay open, and the requests that are being processed.
struct ConnectionTableTests {
    private static let limits = ConnectionTable.Limits(total: 4, perUser: 3, streamsPerUser: 1)

    /// A class around the table, since `#expect` permits no mutating calls.
    private final class Table {
        private var table: ConnectionTable

        init(_ limits: ConnectionTable.Limits) { table = ConnectionTable(limits) }

        var count: Int { table.count }
        func admit(_ id: Int, of user: UInt32) -> ConnectionTable.Admission {
            table.admit(id, of: user)
        }
        func begin(_ id: Int) -> ConnectionTable.StartDecision { table.begin(id) }
        func end(_ id: Int) -> [Int] { table.end(id) }
        func stream(_ id: Int) -> [Int]? { table.stream(id) }
        func close(_ id: Int) -> Bool { table.close(id) }
        func reserveMemory(_ bytes: Int, by id: Int) -> Bool { table.reserveMemory(bytes, by: id) }
    }

    private func table(_ change: (inout ConnectionTable.Limits) -> Void = { _ in }) -> Table {
        var limits = Self.limits
        change(&limits)
        return Table(limits)
    }

    @Test func aUserWithAllOfTheirConnectionsLosesTheOldest() {
        let table = table()
        for id in 1...3 { #expect(table.admit(id, of: 1) == .admitted(closing: nil)) }
        #expect(table.admit(4, of: 1) == .admitted(closing: 1))
        #expect(table.count == 3)
    }

    @Test func aConnectionWithARequestIsNotLost() {
        let table = table()
        for id in 1...3 {
            _ = table.admit(id, of: 1)
            _ = table.begin(id)
        }
        #expect(table.admit(4, of: 1) == .refused)
        _ = table.end(2)
        #expect(table.admit(5, of: 1) == .admitted(closing: 2))
    }

    @Test func atTheLimitTheUserWithTheMostConnectionsLosesOne() {
        let table = table()
        for id in 1...3 { _ = table.admit(id, of: 1) }
        #expect(table.admit(4, of: 2) == .admitted(closing: nil))
        #expect(table.admit(5, of: 2) == .admitted(closing: 1))
        #expect(table.admit(6, of: 2) == .refused)
        #expect(table.admit(7, of: 3) == .admitted(closing: 2))
    }

    @Test func aStreamBeginsWithTheResponseToARequest() {
        let table = table { $0.requestsPerUser = 1 }
        for id in 1...2 { _ = table.admit(id, of: 1) }
        #expect(table.stream(1) == nil)
        #expect(table.begin(1) == .now)
        #expect(table.begin(2) == .queued)
        #expect(table.stream(2) == nil)
        #expect(table.stream(1) == [2])
    }

    @Test func aStreamIsLostWhereNothingElseIs() {
        let table = table { $0.streamsPerUser = 3 }
        for id in 1...3 {
            _ = table.admit(id, of: 1)
            _ = table.begin(id)
            #expect(table.stream(id) == [])
        }
        _ = table.admit(4, of: 2)
        #expect(table.admit(5, of: 2) == .admitted(closing: 1))
    }

    @Test func aConnectionWithAQueuedRequestIsClosedToAdmitAnother() {
        let table = table { $0.requestsPerUser = 1 }
        for id in 1...3 {
            _ = table.admit(id, of: 1)
            #expect(table.begin(id) == (id == 1 ? .now : .queued))
        }
        _ = table.admit(4, of: 2)
        #expect(table.admit(5, of: 2) == .admitted(closing: 2))
        #expect(table.end(1) == [3])
    }

    @Test func streamsHaveALimit() {
        let table = table()
        for id in 1...2 {
            _ = table.admit(id, of: 1)
            _ = table.begin(id)
        }
        #expect(table.stream(1) == [])
        #expect(table.stream(2) == nil)
        #expect(table.close(1) == false)
        #expect(table.stream(2) == [])
    }

    @Test func requestsOfOneUserTakeTurns() {
        let table = table { $0.requestsPerUser = 1 }
        for id in 1...3 { _ = table.admit(id, of: 1) }
        _ = table.admit(4, of: 2)
        #expect(table.begin(1) == .now)
        #expect(table.begin(2) == .queued)
        #expect(table.begin(3) == .queued)
        #expect(table.begin(4) == .now)
        #expect(table.end(1) == [2])
        #expect(table.close(3))
        #expect(table.end(2) == [])
    }

    @Test func aRequestWhoseClientIsGoneCountsUntilItsEnd() {
        let table = table { $0.requestsPerUser = 1 }
        for id in 1...2 { _ = table.admit(id, of: 1) }
        #expect(table.reserveMemory(1 << 20, by: 1))
        #expect(table.begin(1) == .now)
        #expect(!table.close(1))
        #expect(table.begin(2) == .queued)
        #expect(table.count == 2)
        #expect(table.end(1) == [2])
        #expect(table.count == 1)
    }

    @Test func aRequestWhoseClientIsGoneBeforeItsTurnDoesNotRun() {
        let table = table()
        #expect(table.admit(1, of: 1) == .admitted(closing: nil))
        #expect(!table.close(1))
        #expect(table.begin(1) == .gone)
        // A connection that was closed in favour of another one.
        for id in 2...5 { _ = table.admit(id, of: 1) }
        #expect(table.begin(2) == .gone)
        #expect(table.count == 3)
    }

    @Test func aLargeRequestLeavesRoomForASmallOne() {
        let table = table()
        for id in 1...3 { _ = table.admit(id, of: 1) }
        #expect(table.reserveMemory(1 << 20, by: 1) && table.reserveMemory(1 << 20, by: 2))
        #expect(table.begin(1) == .now)
        #expect(table.begin(3) == .now)
        #expect(table.begin(2) == .queued)
    }

    @Test func bodiesHaveALimitForAUserAndForAll() {
        let table = table {
            ($0.bodies, $0.bodiesPerUser, $0.smallBody) = (30, 20, 5)
        }
        for id in 1...2 { _ = table.admit(id, of: 1) }
        for id in 3...4 { _ = table.admit(id, of: 2) }
        #expect(table.reserveMemory(25, by: 1))
        #expect(table.reserveMemory(5, by: 2))
        #expect(!table.reserveMemory(6, by: 2))
        #expect(table.reserveMemory(15, by: 3))
        #expect(!table.reserveMemory(6, by: 4))
        _ = table.end(1)
        #expect(table.reserveMemory(6, by: 4))
        #expect(!table.close(3))
        #expect(table.reserveMemory(25, by: 4))
    }

    @Test(arguments: [
        (descriptors: 20, total: 16, perUser: 8), (1024, 512, 64), (1 << 20, 1024, 128),
    ])
    func theLimitsFollowTheDescriptors(descriptors: Int, total: Int, perUser: Int) {
        let limits = ConnectionTable.Limits(descriptors: descriptors)
        #expect(limits.total == total && limits.perUser == perUser)
        #expect(limits.streamsPerUser == perUser / 2)
    }
}

import FoundationEssentials
import StageControl
import StageModel
import Testing

@testable import StageDaemon

struct ContentSharingTests {
    @Test func theFirstTaskLeadsAndTheNextFollowInOrder() {
        var sharing = ContentSharing()
        let waiting = (1...4).map { sharing.join($0, for: "x") }
        #expect(waiting == [false, true, true, true])
        #expect(sharing.followers(of: 1) == [2, 3, 4])
        #expect(sharing.leave(2) == nil)
        #expect(sharing.leave(1) == 3)
        #expect(sharing.leader(of: 4) == 3)
        let next = sharing.handOver(from: 3) { _ in true }
        #expect(next == 4)
        #expect(sharing.followers(of: 4) == [3])
        #expect(sharing.leave(4) == 3)
        #expect(sharing.leave(3) == nil)
        #expect(sharing.leaders == [])
        #expect(sharing.join(5, for: "x") == false)
    }

    @Test func aLeaderThatIsReplacedLeavesAlone() {
        var sharing = ContentSharing()
        for id in 1...2 as ClosedRange<Int64> { _ = sharing.join(id, for: "x") }
        sharing.replaceLeader(for: "x", by: 3)
        #expect(sharing.leave(1) == nil)
        #expect(sharing.followers(of: 3) == [2])
    }

    /// A user may have any number of them, whose changes would each search through all.
    @Test func followersThatCannotRunAreConsideredOnce() {
        var sharing = ContentSharing()
        for id in 1...1000 as ClosedRange<Int64> { _ = sharing.join(id, for: "x") }
        var count = 0
        func handOver(from leader: Int64, to able: Int64?) -> Int64? {
            sharing.handOver(from: leader) { id in
                count += 1
                return id == able
            }
        }
        #expect(handOver(from: 1, to: nil) == nil)
        #expect(count == 999)
        #expect(handOver(from: 1, to: 500) == nil)
        #expect(count == 999)
        sharing.reconsider(500)
        #expect(handOver(from: 1, to: 500) == 500)
        #expect(count == 1000)
        let others = Set<Int64>(1...1000).subtracting([500])
        #expect(Set(sharing.followers(of: 500)) == others)
        // The next leader is the first that was set aside.
        #expect(sharing.leave(500) == 2)
        sharing.reconsiderFollowers(of: 2)
        #expect(handOver(from: 2, to: 1) == 1)
        #expect(count == 1000 + 998)
    }

    @Test func aFollowerThatIsSetAsideLeadsOnceItCanRun() throws {
        let now = Date(timeIntervalSince1970: 1_800_000_000)
        var state = TransferState(configuration: DaemonConfiguration(), at: now)
        state.sessions[1] = TransferState.Session(record: SessionRecord(1))
        let digest = String(repeating: "0", count: 64)
        var tasks = (1...3).map { FullTask($0, digest: digest) }
        for index in tasks.indices { tasks[index].record.blocks = .client }
        try state.reserve(tasks.map(\.request), in: 1)
        state.created(tasks.map { ($0.record, true, $0.request) }, in: 1, reason: nil, at: now)
        #expect(state.runScheduler(at: now) == [])
        var change = TransferChange()
        change.state = .running
        guard case .write(let task) = try state.begin(change, of: tasks[1], at: now) else {
            Issue.record("the task is not changed")
            return
        }
        #expect(state.changed(task, by: change, at: now) == false)
        #expect(
            state.runScheduler(at: now) == [.start(2, session: 1, acceptsAnyStatus: false)]
        )
    }
}

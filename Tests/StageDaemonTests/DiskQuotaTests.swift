import Testing

@testable import StageDaemon

/// Limits of the files that the daemon keeps for users.
struct DiskQuotaTests {
    /// A class around the quota, since `#expect` permits no mutating calls.
    private final class Held {
        private var quota: DiskQuota

        init(_ limits: DiskQuota.Limits) { quota = DiskQuota(limits) }

        func grow(
            _ item: DiskQuota.Item,
            to bytes: Int64,
            of user: UInt32,
            free: Int64
        )
            -> DiskQuota.Verdict
        {
            quota.grow(item, to: bytes, of: user, free: free)
        }
        func set(_ item: DiskQuota.Item, to bytes: Int64, of user: UInt32) {
            quota.set(item, to: bytes, of: user)
        }
        func move(_ item: DiskQuota.Item, to other: DiskQuota.Item) { quota.move(item, to: other) }
        @discardableResult
        func release(_ item: DiskQuota.Item) -> UInt32? { quota.release(item) }
        func sum(of user: UInt32) -> Int64 { quota.sum(of: user) }
        func finishedDownloads(of user: UInt32) -> [Int64] { quota.finishedDownloads(of: user) }
    }

    private func quota(
        perUser: Int64? = nil,
        share: Int64 = 100,
        reserve: Int64 = 10,
        files: Int? = nil
    ) -> Held {
        Held(
            DiskQuota.Limits(
                perUser: perUser,
                share: share,
                exempt: 0,
                reserve: reserve,
                files: files
            )
        )
    }

    @Test func filesWithoutBytesHaveALimit() {
        let quota = quota(files: 2)
        for name in ["a", "b"] {
            #expect(quota.grow(.part(name), to: 0, of: 1, free: 1000) == .granted)
        }
        #expect(quota.grow(.part("c"), to: 0, of: 1, free: 1000) == .later)
        #expect(quota.grow(.part("a"), to: 1, of: 1, free: 1000) == .granted)
        #expect(quota.grow(.part("c"), to: 0, of: 2, free: 1000) == .granted)
        for name in ["d", "e", "f"] {
            #expect(quota.grow(.part(name), to: 0, of: 0, free: 1000) == .granted)
        }
        quota.release(.part("a"))
        #expect(quota.grow(.part("c2"), to: 0, of: 1, free: 1000) == .granted)
    }

    @Test func filesOfOneUserAddUp() {
        let quota = quota()
        #expect(quota.grow(.part("a"), to: 60, of: 1, free: 1000) == .granted)
        #expect(quota.grow(.part("b"), to: 41, of: 1, free: 1000) == .later)
        #expect(quota.grow(.part("b"), to: 40, of: 1, free: 1000) == .granted)
        #expect(quota.grow(.part("c"), to: 100, of: 2, free: 1000) == .granted)
        #expect(quota.sum(of: 1) == 100)
        quota.release(.part("a"))
        #expect(quota.grow(.part("b"), to: 100, of: 1, free: 1000) == .granted)
        #expect(quota.grow(.part("b"), to: 101, of: 1, free: 1000) == .never(limit: 100))
    }

    @Test func aFinishedFileCountsUntilItIsGone() {
        let quota = quota()
        #expect(quota.grow(.part("a"), to: 70, of: 1, free: 1000) == .granted)
        quota.move(.part("a"), to: .finished(7))
        #expect(quota.finishedDownloads(of: 1) == [7])
        #expect(quota.grow(.part("b"), to: 40, of: 1, free: 1000) == .later)
        #expect(quota.release(.finished(7)) == 1)
        #expect(quota.release(.finished(7)) == nil)
        #expect(quota.grow(.part("b"), to: 40, of: 1, free: 1000) == .granted)
    }

    @Test func theReserveStaysFree() {
        let quota = quota()
        #expect(quota.grow(.part("a"), to: 90, of: 0, free: 99) == .full)
        #expect(quota.grow(.part("a"), to: 89, of: 0, free: 99) == .granted)
        #expect(quota.grow(.part("a"), to: 90, of: 0, free: 10) == .full)
    }

    @Test func theDefaultLeavesOthersAsMuch() {
        let quota = quota(share: 1000)
        #expect(quota.grow(.part("a"), to: 45, of: 1, free: 100) == .granted)
        #expect(quota.grow(.part("b"), to: 1, of: 1, free: 55) == .later)
        #expect(quota.grow(.part("c"), to: 22, of: 2, free: 55) == .granted)
    }

    @Test func aLimitThatIsConfiguredIsEverybodys() {
        let quota = quota(perUser: 50)
        #expect(quota.grow(.part("a"), to: 51, of: 0, free: 1000) == .never(limit: 50))
        #expect(quota.grow(.part("a"), to: 50, of: 0, free: 60) == .granted)
        let other = self.quota()
        #expect(other.grow(.part("a"), to: 500, of: 0, free: 1000) == .granted)
    }

    @Test func sizesThatNoDiskHasDoNotOverflow() {
        let quota = quota()
        for task in 0..<5000 as Range<Int64> { quota.set(.finished(task), to: .max, of: 1) }
        #expect(quota.grow(.part("a"), to: 1, of: 1, free: .max) == .later)
        for task in 0..<5000 as Range<Int64> { quota.release(.finished(task)) }
        #expect(quota.sum(of: 1) == 0)
    }
}

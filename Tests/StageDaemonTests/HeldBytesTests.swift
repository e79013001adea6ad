import Testing

@testable import StageDaemon

/// How many bytes of files users may have.
struct HeldBytesTests {
    /// Bytes whose verdicts `#expect` can compare: it takes no mutating calls.
    private final class Held {
        private var held: HeldBytes

        init(_ limits: HeldBytes.Limits) { held = HeldBytes(limits) }

        func grow(
            _ item: HeldBytes.Item,
            to bytes: Int64,
            of user: UInt32,
            free: Int64
        )
            -> HeldBytes.Verdict
        {
            held.grow(item, to: bytes, of: user, free: free)
        }
        func set(_ item: HeldBytes.Item, to bytes: Int64, of user: UInt32) {
            held.set(item, to: bytes, of: user)
        }
        func move(_ item: HeldBytes.Item, to other: HeldBytes.Item) { held.move(item, to: other) }
        @discardableResult
        func release(_ item: HeldBytes.Item) -> UInt32? { held.release(item) }
        func sum(of user: UInt32) -> Int64 { held.sum(of: user) }
        func staged(of user: UInt32) -> [Int64] { held.staged(of: user) }
    }

    private func held(
        perUser: Int64? = nil,
        share: Int64 = 100,
        reserve: Int64 = 10,
        files: Int? = nil
    ) -> Held {
        Held(
            HeldBytes.Limits(
                perUser: perUser,
                share: share,
                exempt: 0,
                reserve: reserve,
                files: files
            )
        )
    }

    @Test func filesWithoutBytesHaveALimit() {
        let held = held(files: 2)
        for name in ["a", "b"] {
            #expect(held.grow(.part(name), to: 0, of: 1, free: 1000) == .granted)
        }
        #expect(held.grow(.part("c"), to: 0, of: 1, free: 1000) == .later)
        #expect(held.grow(.part("a"), to: 1, of: 1, free: 1000) == .granted)
        #expect(held.grow(.part("c"), to: 0, of: 2, free: 1000) == .granted)
        for name in ["d", "e", "f"] {
            #expect(held.grow(.part(name), to: 0, of: 0, free: 1000) == .granted)
        }
        held.release(.part("a"))
        #expect(held.grow(.part("c2"), to: 0, of: 1, free: 1000) == .granted)
    }

    @Test func filesOfOneUserAddUp() {
        let held = held()
        #expect(held.grow(.part("a"), to: 60, of: 1, free: 1000) == .granted)
        #expect(held.grow(.part("b"), to: 41, of: 1, free: 1000) == .later)
        #expect(held.grow(.part("b"), to: 40, of: 1, free: 1000) == .granted)
        #expect(held.grow(.part("c"), to: 100, of: 2, free: 1000) == .granted)
        #expect(held.sum(of: 1) == 100)
        held.release(.part("a"))
        #expect(held.grow(.part("b"), to: 100, of: 1, free: 1000) == .granted)
        #expect(held.grow(.part("b"), to: 101, of: 1, free: 1000) == .never(limit: 100))
    }

    @Test func aFinishedFileCountsUntilItIsGone() {
        let held = held()
        #expect(held.grow(.part("a"), to: 70, of: 1, free: 1000) == .granted)
        held.move(.part("a"), to: .staged(7))
        #expect(held.staged(of: 1) == [7])
        #expect(held.grow(.part("b"), to: 40, of: 1, free: 1000) == .later)
        #expect(held.release(.staged(7)) == 1)
        #expect(held.release(.staged(7)) == nil)
        #expect(held.grow(.part("b"), to: 40, of: 1, free: 1000) == .granted)
    }

    @Test func theReserveStaysFree() {
        let held = held()
        #expect(held.grow(.part("a"), to: 90, of: 0, free: 99) == .full)
        #expect(held.grow(.part("a"), to: 89, of: 0, free: 99) == .granted)
        #expect(held.grow(.part("a"), to: 90, of: 0, free: 10) == .full)
    }

    @Test func theDefaultLeavesOthersAsMuch() {
        let held = held(share: 1000)
        #expect(held.grow(.part("a"), to: 45, of: 1, free: 100) == .granted)
        #expect(held.grow(.part("b"), to: 1, of: 1, free: 55) == .later)
        #expect(held.grow(.part("c"), to: 22, of: 2, free: 55) == .granted)
    }

    @Test func aLimitThatIsConfiguredIsEverybodys() {
        let held = held(perUser: 50)
        #expect(held.grow(.part("a"), to: 51, of: 0, free: 1000) == .never(limit: 50))
        #expect(held.grow(.part("a"), to: 50, of: 0, free: 60) == .granted)
        let other = self.held()
        #expect(other.grow(.part("a"), to: 500, of: 0, free: 1000) == .granted)
    }

    @Test func sizesThatNoDiskHasDoNotOverflow() {
        let held = held()
        for task in 0..<5000 as Range<Int64> { held.set(.staged(task), to: .max, of: 1) }
        #expect(held.grow(.part("a"), to: 1, of: 1, free: .max) == .later)
        for task in 0..<5000 as Range<Int64> { held.release(.staged(task)) }
        #expect(held.sum(of: 1) == 0)
    }
}

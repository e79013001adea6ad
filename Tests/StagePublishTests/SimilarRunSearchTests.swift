import StageIndex
import StageSystem
import StageTesting
import Testing

@testable import StagePublish

/// Ranges of content that resemble an older version.
struct SimilarRunSearchTests {
    private func found(in content: [UInt8], after prefix: [UInt8]) -> [SimilarRun]? {
        SimilarRunSearch(mostBytes: content.count).runs(
            of: content,
            in: prefix,
            unless: Cancellation()
        )
    }

    /// For any content, the runs are in order, and lie within both versions.
    @Test(arguments: 0..<40 as Range<UInt64>)
    func runsAreInOrderAndInRange(seed: UInt64) throws {
        var numbers = SeededGenerator(seed: seed)
        let letters = UInt8.random(in: 1...6, using: &numbers)
        func text(_ count: Int) -> [UInt8] {
            (0..<count).map { _ in UInt8.random(in: 0..<letters, using: &numbers) }
        }
        let prefix = text(Int.random(in: 0...700, using: &numbers))
        var content: [UInt8] = []
        for _ in 0..<Int.random(in: 0...12, using: &numbers) {
            content += text(Int.random(in: 0...30, using: &numbers))
            guard !prefix.isEmpty else { continue }
            let start = Int.random(in: 0..<prefix.count, using: &numbers)
            content += prefix[start...].prefix(Int.random(in: 0...200, using: &numbers))
            if !content.isEmpty { content[Int.random(in: content.indices, using: &numbers)] = 9 }
        }
        let runs = try #require(found(in: content, after: prefix))
        var end = 0
        for run in runs {
            #expect(run.content.lowerBound >= end && !run.content.isEmpty)
            #expect(run.prefixOffset >= 0)
            #expect(run.prefixOffset + run.content.count <= prefix.count)
            end = run.content.upperBound
        }
        #expect(end <= content.count)
    }

    @Test func aRunContinuesThroughMismatches() throws {
        let prefix = noise(1000)
        var content = noise(50, seed: 2) + prefix[100..<900] + noise(50, seed: 3)
        for offset in stride(from: 90, to: 820, by: 20) { content[offset] &+= 7 }
        let runs = try #require(found(in: content, after: prefix))
        try #require(runs.count == 1)
        // Bytes that are equal by chance may lie at the ends.
        #expect((48...50).contains(runs[0].content.lowerBound))
        #expect((850...852).contains(runs[0].content.upperBound))
        #expect(runs[0].prefixOffset - runs[0].content.lowerBound == 50)
    }

    @Test func bothSidesOfAPartMayBeShort() {
        for count in 0..<12 {
            #expect(found(in: noise(count), after: noise(5000))?.isEmpty == true)
            #expect(found(in: noise(5000), after: noise(count))?.isEmpty == true)
        }
        #expect(found(in: noise(13), after: noise(13))?.count == 1)
    }

    /// In repetitive content, each position is found repeatedly: the time must not grow quadratically.
    @Test(.timeLimit(.minutes(3)), arguments: [6, 101])
    func contentThatRepeatsItselfTakesNoLonger(period: Int) throws {
        let part = noise(period)
        let prefix = noise(10) + (0..<700_000).map { part[$0 % period] } + noise(10)
        let content = noise(10, seed: 2) + (0..<1_000_000).map { part[$0 % period] }
        let runs = try #require(found(in: content, after: prefix))
        #expect(!runs.isEmpty)
    }

    @Test func moreRunsThanAllowedAreNone() throws {
        let prefix = noise(3200)
        let records = stride(from: 0, to: 3200, by: 32).reversed().flatMap { prefix[$0..<$0 + 32] }
        let all = try #require(found(in: records, after: prefix))
        #expect(all.count >= 90)
        for (most, isFound) in [(3 * all.count - 1, false), (3 * all.count, true)] {
            let search = SimilarRunSearch(mostBytes: most)
            let found = search.runs(of: records, in: prefix, unless: Cancellation())
            #expect((found != nil) == isFound)
        }
    }

    @Test func aCancelledSearchEnds() {
        let cancellation = Cancellation()
        cancellation.request()
        let search = SimilarRunSearch(mostBytes: 100)
        #expect(search.runs(of: noise(100), in: noise(100), unless: cancellation) == nil)
    }
}

import StageDigest
import StageIndex
import StageModel
import Testing

struct ContentChunkerTests {
    /// Returns reproducible bytes.
    private func content(_ count: Int, seed: UInt64 = 1) -> [UInt8] {
        var state = seed
        let words = (0..<count / 4 + 1).map { _ in
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return UInt32(truncatingIfNeeded: state >> 32)
        }
        return unsafe words.withUnsafeBytes { unsafe Array($0.prefix(count)) }
    }

    private func chunks(of bytes: [UInt8]) -> [Digest] {
        lengths(of: bytes).digests(of: bytes)
    }

    private func lengths(of bytes: [UInt8]) -> [Int] {
        var lengths: [Int] = []
        var start = 0
        while start < bytes.count {
            lengths.append(
                ContentChunker.firstChunk(of: bytes.span.extracting(start..<bytes.count))
            )
            start += lengths[lengths.count - 1]
        }
        return lengths
    }

    @Test func chunksHaveTheSizesOfTheFormat() {
        let all = lengths(of: content(16 << 20))
        #expect(all.dropLast().allSatisfy { ContentChunker.minimum...ContentChunker.maximum ~= $0 })
        #expect(all.reduce(0, +) == 16 << 20)
        #expect(180...350 ~= all.count, "\(all.count)")
        #expect(lengths(of: content(100)) == [100])
        // Content without any boundary is cut at the maximum.
        let zeros = [UInt8](repeating: 0, count: 600 << 10)
        #expect(lengths(of: zeros) == [256 << 10, 256 << 10, 88 << 10])
    }

    /// Other parameters would be valid too, but find no chunks of content published before.
    @Test func theParametersAreFrozen() {
        #expect(
            Array(lengths(of: content(2 << 20)).prefix(6)) == [
                67316, 96629, 73073, 73759, 89437, 78467,
            ]
        )
    }

    @Test func anInsertionChangesFewChunks() {
        let old = content(8 << 20)
        let new = Array(old[..<3_000_000]) + [1, 2, 3] + Array(old[3_000_000...])
        let (before, after) = (Set(chunks(of: old)), chunks(of: new))
        #expect(after.count { !before.contains($0) } <= 3)
    }
}

extension [Int] {
    /// Returns the digests of pieces of these lengths.
    fileprivate func digests(of bytes: [UInt8]) -> [Digest] {
        var start = 0
        return map { length in
            defer { start += length }
            return Digest(of: [UInt8](bytes[start..<start + length]))
        }
    }
}

struct RangePlanTests {
    private func index(_ ranges: [(bundle: Int, offset: Int64, length: Int)]) -> ContentIndex {
        let digest = Digest(of: [])
        return ContentIndex(
            bundles: [.init(digest: digest, size: 1 << 28), .init(digest: digest, size: 1 << 28)],
            frames: ranges.map {
                .init(
                    digest: digest,
                    length: $0.length,
                    compressed: nil,
                    bundle: $0.bundle,
                    offset: $0.offset
                )
            }
        )
    }

    @Test func neighboursAreAskedForAtOnce() {
        let index = index([
            (1, 0, 1000), (0, 5000, 1000), (0, 0, 5000), (0, 6000 + 65536, 10), (0, 200_000, 10),
        ])
        let plan = RangePlan(0..<5, of: index)
        #expect(plan.requests.map(\.bundle) == [0, 0, 1])
        #expect(plan.requests.map(\.range) == [0..<71_546, 200_000..<200_010, 0..<1000])
        #expect(plan.requests.map(\.frames) == [[2, 1, 3], [4], [0]])
        #expect(RangePlan([4], of: index).requests.map(\.range) == [200_000..<200_010])
        #expect(RangePlan([], of: index).requests.isEmpty)
    }

    @Test func aRequestHasFourMebibytesAtMost() {
        let index = index((0..<20).map { (0, Int64($0) << 20, 1 << 20) })
        let plan = RangePlan(0..<20, of: index)
        #expect(plan.requests.map(\.range.count) == [Int](repeating: 4 << 20, count: 5))
        #expect(plan.byteCount == 20 << 20)
    }

    @Test func largeTransfersHaveLargerRequests() {
        let index = index((0..<100).map { (0, Int64($0) << 20, 1 << 20) })
        let plan = RangePlan(0..<100, of: index)
        #expect(plan.requests.count == 9)
        #expect(plan.requests.allSatisfy { $0.range.count <= 16 << 20 })
    }

    @Test func widerGapsAreReadOverWhereTheyAreMany() {
        func plan(_ length: Int, count: Int) -> RangePlan {
            let step = Int64(length) + 100_000
            let ranges = (0..<count).map { (0, Int64($0) * step, length) }
            return RangePlan(0..<count, of: index(ranges))
        }
        // The gaps are a 43rd of the requested bytes.
        #expect(plan(4 << 20, count: 8).requests.count == 8)
        #expect(plan(4 << 20, count: 40).requests.count == 14)
        // A twelfth would be too much.
        #expect(plan(1 << 20, count: 40).requests.count == 40)
    }
}

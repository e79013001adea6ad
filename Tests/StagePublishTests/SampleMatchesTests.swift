import StageIndex
import StageTesting
import Testing

@testable import StagePublish

struct SampleMatchesTests {
    private let sampler = ContentSampler(byteCount: 1_000_000)

    @Test func equalContentHasEqualSamplesWhereverItLies() {
        let content = noise(200_000)
        let own = sampler.samples(of: content.span)
        #expect((500...1100).contains(own.count))
        let moved = noise(70_001, seed: 2) + content
        let found = sampler.samples(of: moved.span).filter { $0.offset >= 70_001 + 64 }
        #expect(
            found.map(\.fingerprint) == own.map(\.fingerprint)
                && found.map { $0.offset - 70_001 } == own.map(\.offset)
        )
    }

    /// The number of samples is limited to about a million for any size.
    @Test(arguments: [(1 << 20, 8), (1 << 28, 8), (1 << 30, 10), (Int64(1) << 40, 20)])
    func samplesOfLargeContentAreFarApart(byteCount: Int64, bits: Int) {
        let sampler = ContentSampler(byteCount: byteCount)
        #expect(sampler.bits == bits && byteCount >> Int64(sampler.bits) <= 1 << 20)
    }

    /// In repetitive content, all positions are samples, or none.
    @Test(arguments: 1...300)
    func contentThatRepeatsItselfHasFewSamples(period: Int) {
        let pattern = noise(period, seed: UInt64(period))
        var content: [UInt8] = []
        while content.count < 100_000 { content += pattern }
        #expect(sampler.samples(of: content.span).count <= 100_000 / 64)
    }

    @Test func contentShorterThanAFingerprintHasNoSamples() {
        for length in 0..<64 {
            let samples = sampler.samples(of: noise(length, seed: UInt64(length)).span)
            #expect(samples.isEmpty)
        }
    }

    /// Only a few locations are kept of content that occurs everywhere.
    @Test func fewLocationsOfASampleAreKept() {
        let samples = sampler.samples(of: noise(100_000).span)
        var matches = SampleMatches(sampler: sampler, samples: [3: samples])
        for copy in 0..<1000 {
            matches.add(
                matches.table.locations(of: samples) { Int64(copy) * 100_000 + Int64($0) }
            )
        }
        let kept = matches.samples(of: 3)
        #expect(kept.count == samples.count && matches.samples(of: 4).isEmpty)
        for (sample, kept) in zip(samples, kept) {
            let expected = (0..<8).map { Int64($0) * 100_000 + Int64(sample.offset) }
            #expect(kept.offset == sample.offset && kept.addresses.sorted() == expected)
        }
    }

    @Test func otherContentHasNoLocations() {
        let table = SampleMatches(
            sampler: sampler,
            samples: [0: sampler.samples(of: noise(100_000).span)]
        ).table
        let other = sampler.samples(of: noise(100_000, seed: 2).span)
        #expect(table.locations(of: other) { Int64($0) }.isEmpty)
    }
}

import StageEngine
import StageIndex
import StageModel
import StageTesting
import Testing

/// Updates in which content moved to files with other names.
@Suite(.directory, .server)
struct MovedContentTests {
    private let world: IndexedWorld

    init() throws { world = try IndexedWorld() }

    private struct Failure: Error {}

    /// Stages the old files and updates to the new ones; returns the bytes of bundles and delta sets that
    /// the update took.
    private func update(
        from old: [String: [UInt8]],
        to new: [String: [UInt8]]
    ) async throws -> (bundles: Int, deltas: Int) {
        try await world.publish(old)
        guard case .staged = try await world.stage() else { throw Failure() }
        try await world.publish(new)
        let before = (world.bundleBytes, world.deltaBytes)
        guard case .staged = try await world.stage() else { throw Failure() }
        #expect(try world.staged() == new)
        return (world.bundleBytes - before.0, world.deltaBytes - before.1)
    }

    /// Changes one byte in every `distance` bytes.
    private func edited(_ content: [UInt8], each distance: Int) -> [UInt8] {
        var content = content
        for offset in stride(from: distance / 2, to: content.count, by: distance) {
            content[offset] ^= 1
        }
        return content
    }

    @Test func aFileWithAnotherHashInItsNameCostsWhatChanged() async throws {
        let (first, second) = (noise(900_000), noise(500_000, seed: 2))
        let sent = try await update(
            from: ["js/main.3f2a91c0.chunk.js": first, "js/7b11ce05.js": second],
            to: [
                "js/main.b81d77aa.chunk.js": edited(first, each: 30_000),
                "js/e09f3d42.js": edited(second, each: 30_000),
            ]
        )
        #expect(sent.bundles == 0 && sent.deltas < 10_000)
    }

    @Test func smallFilesWithOtherNamesCostWhatChanged() async throws {
        var (old, new): ([String: [UInt8]], [String: [UInt8]]) = ([:], [:])
        for number in 0..<100 {
            let content = noise(4000, seed: UInt64(number + 1))
            old["\(number * 7919 % 1000).svg"] = content
            new["\(number * 6007 % 1000)-symbolic.svg"] = edited(content, each: 3000)
        }
        let sent = try await update(from: old, to: new)
        #expect(sent.bundles == 0 && sent.deltas < 12_000)
    }

    @Test func contentThatMovedToAnotherFileIsFoundThere() async throws {
        let (first, second) = (noise(600_000), noise(600_000, seed: 2))
        let sent = try await update(
            from: ["first": first, "second": second],
            to: [
                "first": edited(Array(first[..<300_000] + second[300_000...]), each: 30_000),
                "second": edited(Array(second[..<300_000] + first[300_000...]), each: 30_000),
            ]
        )
        #expect(sent.bundles == 0 && sent.deltas < 12_000)
    }

    /// Each frame has parts of two files.
    @Test func aFileIsMadeOfTwo() async throws {
        let (first, second) = (noise(400_000), noise(400_000, seed: 2))
        var merged: [UInt8] = []
        for offset in stride(from: 0, to: 400_000, by: 10_000) {
            merged += first[offset..<offset + 10_000] + second[offset..<offset + 10_000]
        }
        let sent = try await update(from: ["a": first, "b": second], to: ["all": merged])
        #expect(sent.bundles == 0 && sent.deltas < 12_000)
        let pack = try #require(world.pack?.index?.deltas.first?.frames)
        #expect(pack.size.rawValue == sent.deltas)
    }

    /// The file at a path gets content that was at another path.
    @Test func theOldContentIsChosenBySimilarityBeforeName() async throws {
        let content = noise(700_000)
        let sent = try await update(
            from: ["icon.bin": noise(700_000, seed: 2), "old/7.bin": content],
            to: ["icon.bin": edited(content, each: 30_000)]
        )
        #expect(sent.bundles == 0 && sent.deltas < 10_000)
    }

    @Test func contentLikeNothingCostsNoMoreThanItself() async throws {
        let old = ["a": noise(700_000), "b/1.js": noise(300_000, seed: 2)]
        let new = ["a": noise(700_000, seed: 3), "b/2.js": noise(300_000, seed: 4)]
        let sent = try await update(from: old, to: new)
        #expect(sent.deltas == 0 && sent.bundles < 1_001_000)
        #expect(world.deltaSets.isEmpty)
    }
}

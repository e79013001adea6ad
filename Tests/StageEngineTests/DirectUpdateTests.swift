import StageEngine
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Updates over several versions, by the delta set from the one that is staged.
@Suite(.directory, .server)
struct DirectUpdateTests {
    private let world: IndexedWorld

    init() throws { world = try IndexedWorld() }

    /// A tree whose large file has other bytes in each version, in half of each frame.
    private func tree(_ version: UInt64) -> [String: [UInt8]] {
        var large = noise(2_000_000)
        let other = noise(2_000_000, seed: version + 20)
        for offset in stride(from: 0, to: large.count - 8192, by: 8192) where version > 0 {
            large.replaceSubrange(offset..<offset + 4096, with: other[offset..<offset + 4096])
        }
        return ["large": large, "same": noise(100_000, seed: 2)]
    }

    private struct Failure: Error {}

    /// The objects of the newest version's delta from the first one.
    private func delta(from first: IndexedPack) throws -> (set: String, PackIndex.Delta) {
        let base = first.reference.contentDigest
        let delta = try #require(world.pack?.index?.deltas.first { $0.base == base })
        return ("/d/\(try #require(delta.frames).digest)", delta)
    }

    /// Stages the first of three versions, and publishes the others.
    private func publish(
        fromAllVersions: Bool = true,
        archive: Bool = false
    ) async throws -> [IndexedPack] {
        var packs = [try await world.publish(tree(0))]
        guard case .staged = try await world.stage() else { throw Failure() }
        packs.append(try await world.publish(tree(1)))
        let last = try await world.publish(
            tree(2),
            fromAllVersions: fromAllVersions,
            archive: archive
        )
        return packs + [last]
    }

    /// Updates to the third version; returns the figures, and the bytes of bundles and of delta sets.
    private func update() async throws -> (StagingFigures, bundles: Int, deltas: Int) {
        let before = (world.bundleBytes, world.deltaBytes)
        guard case .staged(let figures) = try await world.stage() else { throw Failure() }
        #expect(try world.staged() == tree(2))
        return (figures, world.bundleBytes - before.0, world.deltaBytes - before.1)
    }

    @Test func anUpdateOverTwoVersionsTakesItsOwnSet() async throws {
        let packs = try await publish()
        let (set, delta) = try delta(from: packs[0])
        let sent = try await update()
        let size = try #require(delta.frames?.size)
        #expect(world.server.counts(for: set).bytes == size.rawValue)
        #expect(Int64(sent.deltas) == size.rawValue && sent.bundles == 0)
        #expect(sent.0.transferred == size + delta.size)
        #expect(world.server.counts(for: "/\(delta.url)").requests == 1)
        #expect(world.server.counts(for: "/\(packs[2].reference.url)").requests == 0)
        // The transferred bytes are those that the publisher reported, and half of those without the set.
        let said = try #require(packs[2].updates.first { $0.base == delta.base })
        #expect(said.cost.total == sent.0.transferred)
        #expect(said.plainCost.total > ByteCount(1_900_000) && size < ByteCount(1_200_000))
    }

    @Test func withoutTheSetEverythingThatChangedIsFetched() async throws {
        let packs = try await publish(fromAllVersions: false)
        let sent = try await update()
        #expect(sent.deltas == 0 && sent.bundles > 1_900_000)
        #expect(world.server.counts(for: "/\(packs[2].reference.url)").requests == 1)
    }

    @Test(arguments: [80, 5000, 600_000])
    func aDamagedSetOverTwoVersionsFallsBackToBundles(position: Int) async throws {
        let packs = try await publish()
        let (set, _) = try delta(from: packs[0])
        var content = try bytes(of: world.store.path.appending(String(set.dropFirst())))
        content[position] ^= 1
        world.server.answer(set, with: .content(content))
        #expect(try await update().bundles > 16_000)
    }

    /// If the set is larger than the archive, the publisher does not keep it; the update uses the archive, and requests no set.
    @Test func anUpdateIsNeverMoreThanTheArchiveAndTheIndex() async throws {
        func copies(_ version: UInt64) -> [String: [UInt8]] {
            nearCopies(of: tree(version)["large"] ?? [], count: 6)
        }
        try await world.publish(copies(0), archive: true)
        guard case .staged = try await world.stage() else { throw Failure() }
        try await world.publish(copies(1), archive: true)
        let last = try await world.publish(copies(2), fromAllVersions: true, archive: true)
        guard case .staged(let figures) = try await world.stage() else { throw Failure() }
        #expect(try world.staged() == copies(2))
        let archive = try #require(last.archive?.size)
        #expect(figures.transferred <= archive + last.reference.size)
        #expect(world.deltaRequests == 0)
        #expect(last.updates.allSatisfy { $0.cost.total <= archive + last.reference.size })
    }
}

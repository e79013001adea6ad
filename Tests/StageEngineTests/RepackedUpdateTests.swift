import StageEngine
import StageIndex
import StageModel
import StagePublish
import StageTesting
import SystemPackage
import Testing

/// Updates by deltas to a version whose publisher copied frames from bundles that the server no longer has.
@Suite(.directory, .server)
struct RepackedUpdateTests {
    private let world: IndexedWorld

    init() throws { world = try IndexedWorld() }

    /// Returns the files of a version, 0 to 2.
    ///
    /// Each version changes half of each frame of 'changing' and replaces all near copies in 'new'. Only version 0 has
    /// 'gone', which is most of its bundle.
    private func tree(_ version: UInt64) -> [String: [UInt8]] {
        var changing = noise(500_000, seed: 2)
        for offset in stride(from: 0, to: changing.count - 8192, by: 8192) {
            let other = noise(4096, seed: version << 32 + UInt64(offset))
            changing.replaceSubrange(offset..<offset + 4096, with: other)
        }
        var files = ["kept": noise(300_000, seed: 3), "changing": changing]
        if version == 0 { files["gone"] = noise(900_000, seed: 4) }
        for (name, copy) in nearCopies(of: noise(200_000, seed: version + 5), count: 4) {
            files["new/\(name)"] = copy
        }
        return files
    }

    private struct Failure: Error {}

    @Test(arguments: [false, true])
    func anUpdateNeedsNoBundleThatWasCollected(patches: Bool) async throws {
        var packs: [IndexedPack] = []
        for version in 0..<3 as Range<UInt64> {
            let pack = try await world.publish(
                tree(version),
                fromAllVersions: true,
                patches: patches
            )
            packs.append(pack)
            guard version < 2 else { break }
            guard case .staged = try await world.stage("\(version)") else { throw Failure() }
        }
        #expect(packs.map { $0.repackedBytes >= ByteCount(300_000) } == [false, true, false])
        let updates = packs[2].updates
        #expect(updates.count == 2)
        #expect(updates.allSatisfy { ($0.delta?.patch != nil) == patches })
        #expect(updates.allSatisfy { ($0.delta?.frames != nil) != patches })

        let named = Set(packs[2].index.bundles.map { "/b/\($0.digest)" })
        let collected = world.bundles.filter { !named.contains($0) }
        #expect(collected.contains("/b/\(packs[0].index.bundles[0].digest)"))
        for path in collected { world.server.answer(path, with: .status(404)) }
        let asked = collected.map { world.server.counts(for: $0).requests }
        let before = world.bundleBytes
        for name in ["0", "1"] {
            guard case .staged(let figures) = try await world.stage(name) else { throw Failure() }
            #expect(try world.staged(name) == tree(2))
            let update = try #require(
                updates.first { $0.base == packs[name == "0" ? 0 : 1].reference.contentDigest }
            )
            #expect(figures.transferred == update.cost.total)
        }
        #expect(collected.map { world.server.counts(for: $0).requests } == asked)
        #expect((world.bundleBytes == before) == patches)
        // A first installation requests none of the collected bundles either.
        guard case .staged = try await world.stage("none") else { throw Failure() }
        #expect(try world.staged("none") == tree(2))
        #expect(collected.map { world.server.counts(for: $0).requests } == asked)
    }
}

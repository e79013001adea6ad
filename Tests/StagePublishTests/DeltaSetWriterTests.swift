import StageDigest
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Delta sets from several older versions, created with a version or later.
@Suite(.directory)
struct DeltaSetWriterTests {
    private let store: IndexedStore
    private let trees = Self.versions

    init() throws { store = try IndexedStore() }

    /// Three trees that differ in a few bytes of every frame of a large file.
    private static let versions: [[String: [UInt8]]] = (0..<3).map { number in
        var large = noise(400_000)
        for offset in stride(from: 1000, to: large.count, by: 9000) {
            large[offset] = UInt8(number)
        }
        return ["large": large, "same": noise(70_000, seed: 4), "small": [UInt8(number), 7]]
    }

    /// Packages the three trees; the third one with delta sets from `count` versions.
    private func package(
        into store: IndexedStore,
        bases: Int
    ) async throws -> [IndexedPack] {
        let first = try await store.package(trees[0], "one")
        let second = try await store.package(trees[1], "two", after: first.index)
        let third = try await store.package(trees[2], "three", after: second.index) {
            if bases > 1 { $0.older = [first.index] }
        }
        return [first, second, third]
    }

    private func objects(of store: IndexedStore) throws -> Set<String> {
        var names: Set<String> = []
        for folder in ["b", "d", "i"] as [FilePath] {
            names.formUnion(try store.names(in: folder).map { "\(folder)/\($0)" })
        }
        return names
    }

    private func inodes(of store: IndexedStore) throws -> [UInt64?] {
        try objects(of: store).sorted().map { try store.directory().status(FilePath($0))?.inode }
    }

    @Test func severalBasesGiveASetEach() async throws {
        let packs = try await package(into: store, bases: 2)
        let (first, second, third) = (packs[0], packs[1], packs[2])
        let deltas = third.reference.deltas
        #expect(deltas.map(\.base) == [second, first].map(\.reference.contentDigest))
        #expect(third.updates.map(\.base) == deltas.map(\.base))
        for (delta, old) in zip(deltas, [second, first]) {
            let frames = try #require(delta.frames)
            let object = try store.bytes("d/\(frames.digest)")
            let set = try DeltaSet(
                decodingTable: Array(object.prefix(Int(frames.tableSize.rawValue)))
            )
            try set.check(from: old.index, to: third.index)
            #expect(set.old == old.reference.contentDigest)
            #expect(frames.size < ByteCount(20_000))
        }
        for update in third.updates {
            #expect(update.cost.total < ByteCount(20_000))
            #expect(update.plainCost.total > ByteCount(390_000))
        }
        let all = try store.stored(third)
        #expect(Set(all.reference.deltas) == Set(deltas) && all.unnamedBases == 0)
        #expect(try store.files(of: third.index) == trees[2])
    }

    @Test func aSetThatIsMadeLaterIsTheSame() async throws {
        let together = try await package(into: store, bases: 2)
        let other = try IndexedStore("other")
        let packs = try await package(into: other, bases: 1)
        #expect(packs[2].index == together[2].index)
        #expect(packs[2].reference.deltas.count == 1)
        let before = try objects(of: other)
        let version = try other.stored(packs[2])
        let bases = packs[..<2].map(\.index)
        let writer = DeltaSetWriter.withoutPatches(width: 2)
        let updates = try await writer.write(to: version, from: bases, in: other.directory())
        let present = try #require(packs[2].reference.deltas[0].frames?.size)
        #expect(updates.map(\.delta) == together[2].reference.deltas.reversed())
        #expect(updates[1].set == .present(present))
        guard case .made = updates[0].set else {
            Issue.record("\(updates[0].set)")
            return
        }
        #expect(try objects(of: other) == objects(of: store))
        #expect(try objects(of: other).subtracting(before).count == 2)
        // No object is created again.
        let inodes = try inodes(of: other)
        let again = try await writer.write(
            to: other.stored(packs[2]),
            from: bases,
            in: other.directory()
        )
        #expect(again.map(\.delta) == updates.map(\.delta))
        #expect(again[0].set == .present(try #require(updates[0].delta?.frames?.size)))
        #expect(try self.inodes(of: other) == inodes)
    }

    /// Copies of one file cost an archive little, but each adds to a delta set.
    @Test func aSetThatSavesNothingIsNotKept() async throws {
        func tree(_ seed: UInt64) -> [String: [UInt8]] {
            var content = noise(200_000)
            let other = noise(200_000, seed: seed)
            for offset in stride(from: 0, to: content.count - 8192, by: 8192) {
                content.replaceSubrange(offset..<offset + 4096, with: other[offset..<offset + 4096])
            }
            return nearCopies(of: content, count: 8)
        }
        let first = try await store.package(tree(1), "one")
        let second = try await store.package(tree(2), "two", after: first.index)
        let third = try await store.package(tree(3), "three", after: second.index) {
            $0.older = [first.index]
        }
        let archive = try #require(third.archive?.size)
        #expect(third.updates.count == 2)
        for update in third.updates {
            guard case .useless(let size) = update.set else {
                Issue.record("\(update.set)")
                continue
            }
            #expect(size > archive && size < update.cost.objects)
            #expect(update.cost == update.plainCost)
            #expect(update.cost.total == archive + update.cost.index)
            #expect(update.delta?.frames == nil)
        }
        #expect(try store.directory().directory("d") == nil)
    }

    /// The table of the set is too large beside the archive for clients to request it.
    @Test func aSetThatNoClientRequestsIsNotKept() async throws {
        let part = noise(5000)
        func tree(_ version: UInt8) -> [String: [UInt8]] {
            var files: [String: [UInt8]] = [:]
            for number in 0..<24 as Range<UInt8> {
                var bytes = (0..<14).flatMap { _ in part }
                (bytes[1000], bytes[2000]) = (number, version)
                files["\(number)"] = bytes
            }
            return files
        }
        let first = try await store.package(tree(1), "one")
        // Without an archive, the set replaces bundles, and clients request it.
        let second = try await store.package(tree(2), "two", after: first.index) {
            $0.makesArchive = false
        }
        let frames = try #require(second.updates.first?.delta?.frames)
        #expect(second.updates.first?.set == .made(frames.size))
        let repeated = try await store.package(tree(2), "two", after: first.index)
        let archive = try #require(repeated.archive?.size)
        #expect(frames.size < archive)
        let update = try #require(repeated.updates.first)
        #expect(update.set == .useless(frames.size) && update.delta?.frames == nil)
        #expect(update.cost == update.plainCost)
        #expect(update.cost.content == archive)
        // The set is in the store, so manifests name it, but it makes no update smaller.
        let present = try await DeltaSetWriter.withoutPatches(width: 1).write(
            to: store.stored(repeated),
            from: [first.index],
            in: store.directory()
        )
        #expect(present.first?.set == .present(frames.size))
        #expect(present.first?.cost.total == update.cost.total)
    }

    @Test func unsuitableBasesAreRefused() async throws {
        let packs = try await package(into: store, bases: 1)
        let version = try store.stored(packs[2])
        let before = try objects(of: store)
        let stranger = try await store.package(["other": noise(3000, seed: 9)], "stranger")
        let elsewhere = try IndexedStore("elsewhere")
        let foreign = try await elsewhere.package(["large": noise(80_000, seed: 8)], "foreign")
        let faults: [(IndexedPack, BaseFault)] = [
            (packs[2], .sameVersion), (stranger, .unrelated),
            (foreign, .missingBundle(foreign.index.bundles[0].digest)),
        ]
        for (base, fault) in faults {
            let expected = PackagingError.base(base.reference.contentDigest, fault)
            await #expect(throws: expected) {
                try await DeltaSetWriter.withoutPatches(width: 1).write(
                    to: version,
                    // The set from the first one could be created.
                    from: [packs[0].index, base.index],
                    in: store.directory()
                )
            }
        }
        let missing = PackagingError.base(foreign.reference.contentDigest, faults[2].1)
        await #expect(throws: missing) {
            try await store.package(trees[0], "again", after: packs[2].index) {
                $0.older = [foreign.index]
            }
        }
        let added = try objects(of: store).subtracting(before)
        #expect(added == ["b/\(stranger.index.bundles[0].digest)", stranger.reference.url])
    }

    @Test func aManifestNamesTheNewestBases() async throws {
        let count = ManifestLimits.deltas + 2
        var older: [IndexedPack] = []
        for number in 0..<count {
            let files = ["large": trees[0]["large"] ?? [], "small": [UInt8(number), 9]]
            older.append(try await store.package(files, "tree \(number)"))
        }
        let last = try await store.package(trees[1], "last", after: older[0].index)
        let version = try store.stored(last)
        let updates = try await DeltaSetWriter.withoutPatches(width: 2).write(
            to: version,
            from: older.map(\.index),
            in: store.directory()
        )
        #expect(updates.allSatisfy { $0.delta?.frames != nil })
        // The order of names has no effect on the result.
        for (age, pack) in older.enumerated() {
            let path = store.root.path.appending("store").appending(pack.reference.url)
            try File.open(readingRegular: path).setModified(1_800_000_000 - Int64(age))
        }
        let found = try store.stored(last)
        #expect(found.unnamedBases == 2)
        let newest = older.prefix(ManifestLimits.deltas).map(\.reference.contentDigest)
        #expect(found.reference.deltas.map(\.base) == newest)
        #expect(found.reference.deltas.allSatisfy { $0.frames != nil })
    }

    /// The next run removes the hidden file of a killed run, and nothing else.
    @Test func aRunThatWasKilledHarmsNothing() async throws {
        let packs = try await package(into: store, bases: 1)
        let folder = try store.directory("d")
        try folder.write([1, 2, 3], to: ".deltas.abc", durably: false)
        let updates = try await DeltaSetWriter.withoutPatches(width: 1).write(
            to: store.stored(packs[2]),
            from: [packs[0].index],
            in: store.directory()
        )
        #expect(updates[0].delta?.frames != nil)
        #expect(try store.names(in: "d").allSatisfy { !$0.hasPrefix(".") })
        #expect(try store.stored(packs[2]).reference.deltas.count == 2)
    }
}

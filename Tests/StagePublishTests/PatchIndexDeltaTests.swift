import StageDigest
import StageFrame
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Indexes without the digests that clients compute from the content of a patch.
@Suite(.directory)
struct PatchIndexDeltaTests {
    private let store: IndexedStore

    init() throws { store = try IndexedStore() }

    /// Many small files, of which each version changes one byte.
    private func tree(_ version: UInt8) -> [String: [UInt8]] {
        var files: [String: [UInt8]] = [:]
        for number in 0..<300 as Range<UInt64> {
            var content = noise(600, seed: number + 1)
            content[300] = version
            files["folder/\(number)"] = content
        }
        return files
    }

    private func versions() async throws -> (first: IndexedPack, second: IndexedPack) {
        let first = try await store.package(tree(1), "one")
        let second = try await store.package(tree(2), "two", after: first.index) {
            $0.makesPatches = true
        }
        return (first, second)
    }

    private func patch(of pack: IndexedPack) throws -> PackIndex.Patch {
        try #require(pack.reference.deltas.first?.patch)
    }

    private func indexDelta(of pack: IndexedPack) throws -> PackIndex.CompanionDelta {
        try #require(try patch(of: pack).indexDelta)
    }

    /// Returns the part of a delta's name after its digest.
    private func ending(of second: IndexedPack, after first: IndexedPack) -> String {
        ".of.\(second.reference.contentDigest).from.\(first.reference.contentDigest)"
    }

    /// Returns the delta that the store has for a pack.
    private func storedIndexDelta(of pack: IndexedPack) throws -> PackIndex.CompanionDelta? {
        let patch = try store.stored(pack).reference.deltas.first?.patch
        return try #require(patch).indexDelta
    }

    private func manifest(_ packs: Pack...) throws -> Manifest {
        var packs = packs
        for position in packs.indices { packs[position].id = PackID(unchecked: "pack-\(position)") }
        return Manifest(
            application: try ApplicationID("net.example.app"),
            revision: 1,
            packs: packs
        )
    }

    /// Writes the missing objects of the update between two versions.
    private func complete(
        _ second: IndexedPack,
        after first: IndexedPack,
        makesPatches: Bool = true
    ) async throws -> BaseUpdate {
        var writer = DeltaSetWriter(width: 2)
        writer.makesPatches = makesPatches
        let updates = try await writer.write(
            to: store.stored(second),
            from: [first.index],
            in: store.directory()
        )
        return try #require(updates.first)
    }

    @Test func digestsOfManySmallFilesAreNotTransferred() async throws {
        let (first, second) = try await versions()
        let update = try #require(second.updates.first)
        let (patch, indexDelta) = (try patch(of: second), try indexDelta(of: second))
        let delta = try #require(update.delta)
        #expect(delta == second.reference.deltas.first)
        #expect(delta.size > ByteCount(300 * 32))
        #expect(indexDelta.size.rawValue * 5 < delta.size.rawValue)
        let name = "\(indexDelta.digest)\(ending(of: second, after: first))"
        #expect(indexDelta.url == "i/\(name)")
        #expect(update.cost.index == indexDelta.size && update.cost.content == patch.size)
        #expect(update.cost.total == indexDelta.size + patch.size)
        #expect(update.plainCost.index == min(delta.size, second.reference.size))
        let bytes = try store.bytes(indexDelta.url)
        #expect(Digest(of: bytes) == indexDelta.digest)
        #expect(ByteCount(bytes.count) == indexDelta.size)
    }

    @Test func theContentOfThePatchRestoresTheIndex() async throws {
        let (first, second) = try await versions()
        let bytes = try store.bytes(indexDelta(of: second).url)
        let old = first.index.encoded()
        let size = Int(second.reference.contentSize.rawValue)
        var decompressor = FrameDecompressor()
        let content = try decompressor.decompress(bytes.span, after: old.span, to: size)
        let index = try ContentIndex(decoding: content)
        let pieces = PatchContent(of: index, notIn: first.index)
        #expect(pieces.pieces.count == 300)
        let files = try store.files(of: second.index)
        var digests: [Digest] = []
        for piece in pieces.pieces {
            let file = try #require(files[index.entries.path(at: piece.entry).text])
            let start = Int(piece.offset)
            digests.append(Digest(of: Array(file[start..<start + piece.length])))
        }
        let restored = index.encoded(restoring: digests, of: pieces)
        #expect(Digest(of: restored) == second.reference.contentDigest)
    }

    @Test func theStoreHasTheDelta() async throws {
        let (first, second) = try await versions()
        let indexDelta = try indexDelta(of: second)
        #expect(try store.stored(second).reference.deltas == second.reference.deltas)
        let inode = try store.directory().status(FilePath(indexDelta.url))?.inode
        let again = try await complete(second, after: first)
        #expect(again.delta == second.reference.deltas.first)
        #expect(again.cost == second.updates.first?.cost)
        #expect(try store.directory().status(FilePath(indexDelta.url))?.inode == inode)
        // Without the older index, only the size of what it restores is compared.
        try store.replace(first.reference.url, with: nil)
        #expect(try storedIndexDelta(of: second) == indexDelta)
    }

    /// Its name is right, and it is smaller than the right one.
    @Test func aDeltaOfOtherContentIsNotNamed() async throws {
        let (first, second) = try await versions()
        let zeros = [UInt8](repeating: 0, count: Int(second.reference.contentSize.rawValue))
        var compressor = FrameCompressor(level: 3)
        let bytes = compressor.compress(zeros.span)
        let indexDelta = try indexDelta(of: second)
        #expect(ByteCount(bytes.count) < indexDelta.size)
        let path = "i/\(Digest(of: bytes))\(ending(of: second, after: first))"
        try store.replace(path, with: bytes)
        #expect(try storedIndexDelta(of: second) == indexDelta)
        try store.replace(indexDelta.url, with: nil)
        #expect(try storedIndexDelta(of: second) == nil)
        let update = try await complete(second, after: first)
        #expect(update.delta?.patch?.indexDelta == indexDelta)
    }

    @Test func aDamagedDeltaIsNotNamedAndIsMadeAgain() async throws {
        let (first, second) = try await versions()
        let indexDelta = try indexDelta(of: second)
        let bytes = try store.bytes(indexDelta.url)
        var bent = bytes
        bent[bytes.count / 2] ^= 1
        for damaged in [bent, Array(bytes.dropLast()), nil] as [[UInt8]?] {
            try store.replace(indexDelta.url, with: damaged)
            #expect(try storedIndexDelta(of: second) == nil)
            let update = try await complete(second, after: first)
            #expect(update.delta == second.reference.deltas.first)
            #expect(update.patch == .present(try patch(of: second).size))
            #expect(try store.bytes(indexDelta.url) == bytes)
            #expect(try storedIndexDelta(of: second) == indexDelta)
        }
    }

    @Test func withoutPatchesAnUpdateHasTheDeltaOfTheStoreAndNoNewOne() async throws {
        let (first, second) = try await versions()
        let (patch, indexDelta) = (try patch(of: second), try indexDelta(of: second))
        let present = try await complete(second, after: first, makesPatches: false)
        #expect(present.delta == second.reference.deltas.first)
        #expect(present.cost == second.updates.first?.cost)
        try store.replace(indexDelta.url, with: nil)
        let update = try await complete(second, after: first, makesPatches: false)
        #expect(update.patch == .present(patch.size))
        let named = try #require(update.delta?.patch)
        #expect(named.indexDelta == nil)
        #expect(update.cost.index == update.plainCost.index)
        #expect(try store.directory().status(FilePath(indexDelta.url)) == nil)
    }

    /// A killed run has not written the last objects of an update, of which the delta that the manifest names first is the last.
    @Test func theNextRunCompletesTheUpdateOfAKilledOne() async throws {
        let (first, second) = try await versions()
        let delta = try #require(second.reference.deltas.first)
        let paths = [delta.url, try indexDelta(of: second).url, try patch(of: second).url]
        for count in 1...paths.count {
            for path in paths.prefix(count) { try store.replace(path, with: nil) }
            let again = try await store.package(tree(2), "two", after: first.index) {
                $0.makesPatches = true
            }
            #expect(again.reference == second.reference)
            #expect(again.updates.first?.cost == second.updates.first?.cost)
            #expect(try store.stored(second).reference.deltas == second.reference.deltas)
        }
    }

    @Test func anUpdateOfAPackagedVersionIsTheSameAsThatOfThePackager() async throws {
        let first = try await store.package(tree(1), "one")
        let second = try await store.package(tree(2), "two", after: first.index)
        #expect(second.reference.deltas.allSatisfy { $0.patch == nil })
        let update = try await complete(second, after: first)
        let delta = try #require(update.delta)
        let made = try #require(delta.patch)
        let index = try #require(made.indexDelta)
        // The packager makes the patch, which the store does not have yet.
        for path in [made.url, index.url] { try store.replace(path, with: nil) }
        if let frames = second.reference.deltas.first?.frames {
            try store.replace("d/\(frames.digest)", with: nil)
        }
        let packaged = try await store.package(tree(2), "two", after: first.index) {
            $0.makesPatches = true
        }
        #expect(packaged.index == second.index)
        #expect(packaged.reference.deltas == [delta])
        #expect(packaged.updates.first?.cost == update.cost)
    }

    @Test func verificationFindsAChangedByte() async throws {
        let (_, second) = try await versions()
        let path = try indexDelta(of: second).url
        let offered = second.pack(version: 2)
        let published = PublishedManifest(
            try manifest(offered),
            in: try store.directory().path
        )
        func findings() async throws -> [StoreVerification.Finding] {
            let directory = try store.directory()
            let lock = try await StoreLock(directory)
            return try await StoreVerification.verify(
                directory,
                holding: lock,
                offeredBy: [published],
                width: 2
            ).findings
        }
        #expect(try await findings() == [])
        var bytes = try store.bytes(path)
        bytes[bytes.count / 2] ^= 1
        let id = PackID(unchecked: "pack-0")
        for (replacement, fault) in [
            (bytes, .damaged), (nil, .missing),
        ] as [([UInt8]?, StoreVerification.Fault)] {
            try store.replace(path, with: replacement)
            let finding = StoreVerification.Finding(path: path, fault: fault, packs: [id])
            #expect(try await findings() == [finding])
        }
    }

    @Test func garbageCollectionKeepsTheDeltaWhileItIsNamed() async throws {
        let (first, second) = try await versions()
        let path = FilePath(try indexDelta(of: second).url)
        let (older, newer) = (first.pack(version: 1), second.pack(version: 2))
        func isPresent() throws -> Bool { try store.directory().status(path) != nil }
        _ = try await store.collect(keeping: [manifest(older, newer)], for: 0)
        #expect(try isPresent())
        var without = newer
        without.index?.deltas[0].patch?.indexDelta = nil
        _ = try await store.collect(keeping: [manifest(older, without)], for: 0)
        #expect(try !isPresent())
        // A delta that is about to be named is marked for one collection.
        let update = try await complete(second, after: first)
        #expect(update.delta == newer.index?.deltas.first)
        _ = try await store.collect(keeping: [manifest(older, without)], for: 0)
        #expect(try isPresent())
        _ = try await store.collect(keeping: [manifest(older, without)], for: 0)
        #expect(try !isPresent())
    }

    @Test func aManifestNamesTheDeltaBesideItsIndex() async throws {
        let (_, second) = try await versions()
        let indexDelta = try indexDelta(of: second)
        var pack = second.pack(version: 2)
        pack.index?.url = "store/\(second.reference.url)"
        pack.archive = nil
        pack.index?.fileTableDelta = nil
        pack.index?.deltas = []
        var document = try ManifestDocument(
            application: try ApplicationID("net.example.app"),
            baseURLs: []
        )
        #expect(try document.add(pack))
        let stored = try store.stored(second)
        #expect(try document.nameDeltas(of: stored))
        let manifest = try Manifest(json: document.json())
        #expect(manifest == document.manifest)
        let named = try #require(manifest.packs.first?.index?.deltas.first?.patch)
        #expect(
            named.indexDelta
                == PackIndex.CompanionDelta(
                    url: "store/\(indexDelta.url)",
                    size: indexDelta.size,
                    digest: indexDelta.digest
                )
        )
        #expect(try Manifest(json: manifest.json()) == manifest)
        #expect(try !document.nameDeltas(of: stored))
        // A manifest with the patch alone gets the delta.
        var older = pack
        older.index?.deltas = manifest.packs[0].index?.deltas ?? []
        older.index?.deltas[0].patch?.indexDelta = nil
        #expect(try document.add(older))
        #expect(try document.nameDeltas(of: stored))
        #expect(document.manifest.packs == manifest.packs)
    }

    /// Few digests are a small part of the bytes of such an update.
    @Test func aDeltaThatSavesLittleIsNotKept() async throws {
        var file = noise(150_000, seed: 1)
        let first = try await store.package(nearCopies(of: file, count: 4), "one")
        for offset in stride(from: 0, to: file.count - 8192, by: 8192) {
            file.replaceSubrange(offset..<offset + 4096, with: noise(4096, seed: UInt64(offset)))
        }
        let second = try await store.package(
            nearCopies(of: file, count: 4),
            "two",
            after: first.index
        ) { $0.makesPatches = true }
        #expect(try patch(of: second).indexDelta == nil)
        let update = try #require(second.updates.first)
        #expect(update.cost.index == update.plainCost.index)
        let names = try store.names(in: "i")
        #expect(names.allSatisfy { !($0.contains(".of.") && $0.contains(".from.")) })
    }
}

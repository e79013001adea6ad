import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The comparison of a store's objects with their names and with manifests.
@Suite(.directory)
struct StoreVerificationTests {
    private let store: IndexedStore

    init() throws { store = try IndexedStore() }

    /// Packages three versions with archives, the second with a delta set and the last with a patch, and returns the last one.
    private func version() async throws -> IndexedPack {
        var file = noise(150_000, seed: 1)
        let first = try await store.package(nearCopies(of: file, count: 4), "one")
        file += [1]
        let second = try await store.package(
            nearCopies(of: file, count: 4),
            "two",
            after: first.index
        )
        for offset in stride(from: 0, to: file.count - 8192, by: 8192) {
            file.replaceSubrange(offset..<offset + 4096, with: noise(4096, seed: UInt64(offset)))
        }
        return try await store.package(
            nearCopies(of: file, count: 4),
            "three",
            after: second.index
        ) { $0.makesPatches = true }
    }

    private func verify(_ packs: IndexedPack...) async throws -> StoreVerification {
        let manifest = Manifest(
            application: try ApplicationID("net.example.app"),
            revision: 1,
            packs: packs.map { $0.pack(version: 1) }
        )
        let directory = try store.directory()
        let lock = try await StoreLock(directory)
        return try await StoreVerification.verify(
            directory,
            holding: lock,
            offeredBy: packs.isEmpty ? [] : [PublishedManifest(manifest, in: directory.path)],
            width: 2
        )
    }

    /// The URL of the first pack leads to a copy of its index, but the other objects show that it belongs to this store.
    @Test func packsOfAnotherStoreAreOnlyCounted() async throws {
        let (copy, other) = (try IndexedStore("copy"), try IndexedStore("other"))
        let own = try await version()
        let second = try await store.package(["y": noise(70_000, seed: 8)], "four")
        let foreign = try await other.package(["z": noise(70_000, seed: 9)], "five")
        let packs = [(own, copy), (second, store), (foreign, other)].map { packed, store in
            var pack = packed.pack(version: 1)
            pack.index?.url = "\(store.name)/\(packed.reference.url)"
            return pack
        }
        let application = try ApplicationID("net.example.app")
        let manifest = Manifest(application: application, revision: 1, packs: packs)
        func result() async throws -> StoreVerification {
            let directory = try store.directory()
            let lock = try await StoreLock(directory)
            return try await StoreVerification.verify(
                directory,
                holding: lock,
                offeredBy: [PublishedManifest(manifest, in: store.root.path)],
                width: 2
            )
        }
        let index = own.reference.url
        let name = try #require(FilePath(index).lastComponent)
        let indexes = try copy.directory().makeDirectory("i")
        try indexes.write(try store.bytes(index), to: name, durably: false)
        let intact = try await result()
        #expect(intact.findings == [] && intact.packsOfOtherStores == 1)
        try store.replace(index, with: nil)
        let damaged = try await result()
        #expect(damaged.findings.map(\.path).contains(index), "\(damaged)")
        #expect(damaged.packsOfOtherStores == 1)
    }

    private func paths() throws -> [String] {
        var paths: [String] = []
        for folder in ["a", "b", "d", "i", "p"]
        where try store.directory().directory(FilePath(folder)) != nil {
            paths += try store.names(in: FilePath(folder)).map { "\(folder)/\($0)" }
        }
        return paths
    }

    /// The decompressed bytes are compared first, and then the parts that they are decoded to.
    @Test func anIndexMustFitInMemory() async throws {
        let pack = try await store.package(["a": noise(100_000)], "one")
        let path = try store.directory().path.appending(pack.reference.url)
        let size = pack.reference.contentSize
        let most = ByteCount(size.rawValue - 1)
        #expect(
            throws: StoredIndex.Fault.noMemory(path, needed: size, available: most)
        ) { try StoredIndex(at: path, memory: most) }
        let error = #expect(throws: StoredIndex.Fault.self) {
            try StoredIndex(at: path, memory: size)
        }
        guard let error, case .noMemory(let location, let needed, let available) = error else {
            Issue.record("no error of the memory")
            return
        }
        #expect(location == path && needed > size && available == size)
        let stored = try StoredIndex(at: path, memory: .mebibytes(1))
        #expect(try store.stored(pack) == stored)
    }

    @Test func anUndamagedStoreHasNoFindings() async throws {
        let pack = try await version()
        for folder in ["a", "b", "d", "i", "p"] {
            #expect(try store.names(in: FilePath(folder)).isEmpty == false, "\(folder)")
        }
        #expect(pack.reference.fileTableDelta != nil)
        try store.directory("b").write([1], to: "README", durably: false)
        for verification in [try await verify(), try await verify(pack)] {
            #expect(verification.findings == [])
            #expect(verification.intact.objects == (try paths().count) - 1)
        }
    }

    @Test func aChangedByteOfAnyObjectIsFound() async throws {
        let pack = try await version()
        for path in try paths() {
            let bytes = try store.bytes(path)
            var bent = bytes
            bent[bytes.count / 2] ^= 1
            for damaged in [bent, Array(bytes.dropLast()), bytes + [0]] {
                try store.replace(path, with: damaged)
                let findings = try await verify().findings
                #expect(
                    findings == [StoreVerification.Finding(path: path, fault: .damaged, packs: [])]
                )
                let named = try await verify(pack).findings
                #expect(named.map(\.path) == [path] && named.map(\.fault) == [.damaged])
            }
            try store.replace(path, with: bytes)
        }
        #expect(try await verify(pack).findings == [])
    }

    @Test func anObjectThatAManifestNamesIsMissed() async throws {
        let pack = try await version()
        let id = pack.pack
        var needed = 0
        for path in try paths() {
            let bytes = try store.bytes(path)
            try store.replace(path, with: nil)
            #expect(try await verify().findings == [])
            let findings = try await verify(pack).findings
            if !findings.isEmpty {
                needed += 1
                let missing = StoreVerification.Finding(path: path, fault: .missing, packs: [id])
                #expect(findings == [missing])
            }
            try store.replace(path, with: bytes)
        }
        // The index, its delta and that of the file table, the archive, the patch, and all bundles.
        #expect(needed == 5 + pack.index.bundles.count)
    }
}

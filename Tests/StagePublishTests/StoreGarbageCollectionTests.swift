import StageDigest
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The removal of objects that no manifest names.
@Suite(.directory)
struct StoreGarbageCollectionTests {
    private let store: IndexedStore
    private let start = Int64(1_800_000_000)
    private let day = Int64(86400)

    init() throws { store = try IndexedStore() }

    /// Two versions of a pack, the second with a delta set, and a third one that shares nothing with them.
    private func versions() async throws -> [IndexedPack] {
        let first = try await store.package(["a": noise(100_000, seed: 1), "b": [1]], "one")
        let second = try await store.package(
            ["a": noise(100_000, seed: 1) + [7], "b": [2]],
            "two",
            after: first.index
        )
        let third = try await store.package(["a": noise(70_000, seed: 3)], "three")
        return [first, second, third]
    }

    private func manifest(_ packs: IndexedPack...) throws -> Manifest {
        Manifest(
            application: try ApplicationID("net.example.app"),
            revision: 1,
            packs: packs.enumerated().map { position, pack in
                var offered = pack.pack(version: 1)
                offered.id = PackID(unchecked: "pack-\(position)")
                return offered
            }
        )
    }

    private func collect(
        _ manifests: Manifest...,
        after seconds: Int64 = 0,
        keeping: Int64? = nil,
        isDryRun: Bool = false
    ) async throws -> StoreGarbageCollection {
        try await store.collect(
            keeping: manifests,
            for: keeping ?? 30 * day,
            now: start + seconds,
            isDryRun: isDryRun
        )
    }

    private func names() throws -> Set<String> {
        var names: Set<String> = []
        for folder in ["b", "d", "i"] where try store.directory().directory(FilePath(folder)) != nil
        {
            names.formUnion(try store.names(in: FilePath(folder)).map { "\(folder)/\($0)" })
        }
        return names
    }

    @Test func anObjectGoesWhenItsTimeWithoutUseHasPassed() async throws {
        let versions = try await versions()
        let all = try names()
        let offered = try manifest(versions[1])
        let found = try await collect(offered)
        #expect(found.removed.objects == 0)
        // Three objects wait: the first index, and the index and bundle of the third version.
        #expect(found.waiting.objects == 3)
        #expect(found.used.objects == all.count - 3)
        let early = try await collect(offered, after: 30 * day - 1)
        #expect(early == found)
        #expect(try names() == all)
        let late = try await collect(offered, after: 30 * day)
        #expect(late.removed == found.waiting)
        let left = try names()
        #expect(left.count == all.count - 3)
        #expect(left.contains("d/\(try #require(offered.packs[0].index?.deltas[0].frames).digest)"))
        #expect(try store.files(of: versions[1].index)["b"] == [2])
    }

    @Test func objectsNamedAgainGetTheirFullTime() async throws {
        let versions = try await versions()
        let (older, newer) = (try manifest(versions[0]), try manifest(versions[2]))
        _ = try await collect(newer)
        // Another application's manifest counts too.
        let between = try await collect(newer, older, after: 29 * day)
        #expect(between.waiting.objects > 0)
        let again = try await collect(newer, after: 31 * day)
        #expect(try store.files(of: versions[0].index)["b"] == [1])
        #expect(again.removed.objects > 0)
        let last = try await collect(newer, after: 61 * day)
        #expect(last.removed.objects > 0)
        #expect(
            try names() == ["b/\(versions[2].index.bundles[0].digest)", newer.packs[0].index?.url]
        )
    }

    @Test func aDryRunChangesNothing() async throws {
        let versions = try await versions()
        let all = try store.names(in: ".")
        let objects = try names()
        let offered = try manifest(versions[2])
        let plan = try await collect(offered, keeping: 0, isDryRun: true)
        #expect(plan.removed.objects == objects.count - 2)
        #expect(try names() == objects)
        #expect(try store.names(in: ".") == all)
        #expect(try await collect(offered, keeping: 0) == plan)
        #expect(try names().count == 2)
    }

    @Test func otherFilesStay() async throws {
        let versions = try await versions()
        let folder = try store.directory("b")
        for name: FilePath.Component in ["README", "..hidden", "0123"] {
            try folder.write([1], to: name, durably: false)
        }
        _ = try folder.makeDirectory(FilePath(Digest(of: [9]).description))
        _ = try await collect(try manifest(versions[2]), keeping: 0)
        #expect(try store.names(in: "b").count == 5)
    }

    @Test func noObjectIsRemovedIfAnIndexIsMissingOrDamaged() async throws {
        let versions = try await versions()
        let objects = try names()
        let offered = try manifest(versions[0], versions[2])
        let index = try #require(offered.packs[1].index)
        let name = try #require(FilePath.Component("\(index.digest)"))
        let folder = try store.directory("i")
        let whole = try store.bytes(index.url)
        try folder.remove(name)
        await #expect(throws: StoreGarbageCollectionError.self) {
            try await collect(offered, keeping: 0)
        }
        // An intact index of another version counts as damaged too.
        try folder.write(try store.bytes(versions[0].reference.url), to: name, durably: false)
        await #expect(throws: StoreGarbageCollectionError.self) {
            try await collect(offered, keeping: 0)
        }
        try folder.write(Array(whole.dropLast()), to: name, durably: false)
        await #expect(throws: StoreGarbageCollectionError.self) {
            try await collect(offered, keeping: 0)
        }
        #expect(try names() == objects)
        let empty = Manifest(application: offered.application, revision: 1, packs: [])
        await #expect(throws: StoreGarbageCollectionError.nothingIndexed) {
            try await collect(empty, keeping: 0)
        }
    }

    @Test func aClockThatWasAheadMakesNothingWaitLonger() async throws {
        let versions = try await versions()
        let offered = try manifest(versions[2])
        _ = try await collect(offered, after: 400 * day)
        let back = try await collect(offered)
        #expect(back.removed.objects == 0)
        #expect(try await collect(offered, after: 30 * day).removed == back.waiting)
    }

    /// A machine without a battery for its clock shows 1970 until it asks a time server.
    @Test func aClockThatIsBehindShortensNoTime() async throws {
        let versions = try await versions()
        let offered = try manifest(versions[2])
        let waiting = try await collect(offered).waiting
        for isDryRun in [true, false] {
            await #expect(throws: StoreGarbageCollectionError.clockIsBehind) {
                try await collect(offered, after: 60 - start, isDryRun: isDryRun)
            }
        }
        #expect(try await collect(offered, after: 29 * day).waiting == waiting)
        #expect(try await collect(offered, after: 30 * day).removed == waiting)
    }

    @Test func aDamagedRecordMakesObjectsWaitAgain() async throws {
        let versions = try await versions()
        let offered = try manifest(versions[2])
        _ = try await collect(offered)
        try store.directory().write(Array("x\n1 2 3\n\u{0}".utf8), to: ".unused", durably: false)
        let anew = try await collect(offered, after: 29 * day)
        #expect(anew.removed.objects == 0)
        #expect(try await collect(offered, after: 59 * day).removed == anew.waiting)
    }

    /// The sets from all older versions, created with the version or later.
    @Test func deltaSetsStayWhileAManifestNamesThem() async throws {
        let trees = (0..<3).map { number in
            ["a": noise(100_000, seed: 1) + [UInt8(number)], "b": [UInt8(number)]]
        }
        let first = try await store.package(trees[0], "one")
        let second = try await store.package(trees[1], "two", after: first.index)
        let third = try await store.package(trees[2], "three", after: second.index)
        let path = try store.directory().path.appending(third.reference.url)
        var packs: [IndexedPack] = []
        for bases in [[], [first.index]] {
            _ = try await DeltaSetWriter.withoutPatches(width: 1).write(
                to: StoredIndex(at: path),
                from: bases,
                in: store.directory()
            )
            var pack = third
            pack.reference = try StoredIndex(at: path).reference
            packs.append(pack)
        }
        let sets = packs[1].reference.deltas.compactMap(\.frames).map { "d/\($0.digest)" }
        #expect(sets.count == 2)
        _ = try await collect(try manifest(packs[1]), keeping: 0)
        #expect(try names().isSuperset(of: sets))
        // A manifest names one of them, and then none.
        let named = packs[0].reference.deltas.compactMap(\.frames).map { "d/\($0.digest)" }
        _ = try await collect(try manifest(packs[0]), keeping: 0)
        #expect(try names().filter { $0.hasPrefix("d/") } == Set(named))
        #expect(try names().filter { $0.contains(".from.") }.count == 1)
        packs[0].reference.deltas = []
        _ = try await collect(try manifest(packs[0]), keeping: 0)
        #expect(try names().filter { $0.hasPrefix("d/") || $0.contains(".from.") } == [])
    }

    /// The set was unused for almost the whole time limit, and will be named again.
    @Test func aSetThatIsRequestedAgainWaitsAgain() async throws {
        let versions = try await versions()
        _ = try await collect(try manifest(versions[2]))
        let path = try store.directory().path.appending(versions[1].reference.url)
        let updates = try await DeltaSetWriter.withoutPatches(width: 1).write(
            to: StoredIndex(at: path),
            from: [versions[0].index],
            in: store.directory()
        )
        let delta = try #require(updates[0].delta)
        let set = "d/\(try #require(delta.frames).digest)"
        let later = try await collect(try manifest(versions[2]), after: 30 * day)
        #expect(try names().isSuperset(of: [set, delta.url, versions[1].reference.url]))
        // The older version was not requested.
        #expect(later.removed.objects > 0)
        #expect(try await collect(try manifest(versions[2]), after: 60 * day).waiting.objects == 0)
        #expect(try !names().contains(set))
    }

    @Test func theRecordOfAnIndexGoesWithIt() async throws {
        let versions = try await versions()
        func records() throws -> [String] {
            try store.directory("i").entries().map(\.path.string)
                .filter { $0.hasSuffix(".pack.json") }
        }
        #expect(try records().count == 3)
        let offered = try manifest(versions[2])
        _ = try await collect(offered)
        _ = try await collect(offered, after: 60 * day)
        #expect(try records() == [".\(versions[2].reference.digest).pack.json"])
    }

    @Test func aVersionThatIsAboutToBeOfferedStaysOnce() async throws {
        let versions = try await versions()
        let offered = try manifest(versions[2])
        _ = try await collect(offered)
        let again = try await store.package(["z": noise(100_000, seed: 1), "y": [1]], "four")
        let first = try await collect(offered, keeping: 0)
        #expect(first.waiting.objects == 2)
        #expect(try store.files(of: again.index)["y"] == [1])
        #expect(try await collect(offered, keeping: 0).removed == first.waiting)
    }

    @Test func aVersionStaysOnceAfterACollectionThatFoundNothingUnused() async throws {
        let first = try await store.package(["a": noise(100_000, seed: 1)], "one")
        let offered = try manifest(first)
        #expect(try await collect(offered).waiting.objects == 0)
        let second = try await store.package(["a": noise(100_000, seed: 2)], "two")
        #expect(try await collect(offered, keeping: 0).removed.objects == 0)
        #expect(try store.files(of: second.index).keys.sorted() == ["a"])
    }

    @Test func aVersionIsNotPackagedFromABaseThatIsGone() async throws {
        let versions = try await versions()
        let base = try store.directory().path.appending(versions[0].reference.url)
        func next(_ tree: String) async throws -> IndexedPack {
            try await store.package(["a": [1]], tree, after: versions[0].index) {
                $0.baseFiles = [base]
            }
        }
        _ = try await next("four")
        _ = try await collect(try manifest(versions[2]), keeping: 0)
        let error = await #expect(throws: PackagingError.self) { try await next("five") }
        guard case .file(let fault)? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(fault.path == base && fault.errno == .noSuchFileOrDirectory)
    }

    /// A manifest beside two stores, one of which has a bundle of the other's pack, too.
    @Test func packsOfAnotherStoreNeedNoIndexHere() async throws {
        let other = try IndexedStore("other")
        let own = try await store.package(["a": noise(100_000, seed: 1)], "one")
        let old = try await store.package(["a": noise(100_000, seed: 2)], "two")
        let foreign = try await other.package(["z": noise(100_000, seed: 2)], "three")
        #expect(foreign.index.bundles == old.index.bundles)
        var offered = try manifest(own, foreign)
        for (position, folder) in ["store", "other"].enumerated() {
            let url = try #require(offered.packs[position].index?.url)
            offered.packs[position].index?.url = "\(folder)/\(url)"
        }
        let root = store.root.path
        for (kept, removed) in [(store, 1), (other, 0)] {
            let found = try await kept.collect(keeping: [offered], in: root, for: 0)
            #expect(found.removed.objects == removed && found.packsOfOtherStores == 1)
        }
        #expect(
            try names() == [
                own.reference.url, "b/\(own.index.bundles[0].digest)",
                "b/\(foreign.index.bundles[0].digest)",
            ]
        )
        let name = try #require(FilePath(foreign.reference.url).lastComponent)
        try other.directory("i").remove(name)
        let missing = StoreGarbageCollectionError.missingIndex(
            offered.packs[1].id,
            root.pushing(FilePath("store/\(foreign.reference.url)"))
        )
        await #expect(throws: missing) {
            try await store.collect(keeping: [offered], in: root, for: 0)
        }
    }

    /// A manifest offers the archive of an indexed pack for clients that know no indexes.
    @Test func anArchiveThatAPackWithoutIndexNamesStays() async throws {
        let versions = try await versions()
        let bytes: [UInt8] = [1, 2, 3]
        let name = "\(Digest(of: bytes)).of.\(Digest(of: [4]))"
        let folder = try store.directory().makeDirectory("a")
        try folder.write(bytes, to: try #require(FilePath.Component(name)), durably: false)
        var offered = try manifest(versions[2])
        let archive = PackArchive(
            url: "store/a/\(name)",
            format: .tarZstandard,
            size: ByteCount(3),
            digest: Digest(of: bytes)
        )
        offered.packs.append(
            Pack(
                id: try PackID("archived"),
                version: 1,
                policy: .onDemand,
                archive: archive,
                installedSize: ByteCount(1),
                fileCount: 1
            )
        )
        let found = try await collect(offered, keeping: 0)
        #expect(found.used.objects == 3)
        #expect(try store.names(in: "a") == [name])
        offered.packs.removeLast()
        _ = try await collect(offered, keeping: 0)
        #expect(try store.names(in: "a") == [])
    }

    @Test func anIndexIsFoundByItsDigestAtAnyURL() async throws {
        let versions = try await versions()
        var offered = try manifest(versions[2])
        offered.packs[0].index?.url = "https://cdn.example.org/levels/3.index"
        let found = try await collect(offered, keeping: 0)
        #expect(found.used.objects == 2)
        #expect(try store.files(of: versions[2].index).keys.sorted() == ["a"])
    }

    @Test func temporaryFilesOfKilledRunsGo() async throws {
        let versions = try await versions()
        let offered = try manifest(versions[2])
        let left = [
            (".", "..unused.1a2b.tmp"), (".", "..offered.x.1a2b.tmp"),
            ("i", ".\(Digest(of: [])).1a.tmp"),
            ("b", ".bundle.1a2b"), ("a", ".archive.1a2b"),
        ]
        // The store may be a directory of a web server, with files of other programs.
        try write(left + [(".", ".page.1a2b.tmp")])
        let before = try store.names(in: ".")
        _ = try await collect(offered, isDryRun: true)
        #expect(try store.names(in: ".") == before && isThere(left) == [true])
        _ = try await collect(offered)
        #expect(try isThere(left) == [false])
        #expect(try store.names(in: ".").contains(".page.1a2b.tmp"))
    }

    private func write(_ files: [(folder: String, name: String)]) throws {
        for (folder, name) in files {
            let component = try #require(FilePath.Component(name))
            try store.directory(FilePath(folder)).write([1], to: component, durably: false)
        }
    }

    private func isThere(_ files: [(folder: String, name: String)]) throws -> Set<Bool> {
        Set(try files.map { try store.names(in: FilePath($0.folder)).contains($0.name) })
    }

    @Test func contentPackagedAgainGetsItsFullTime() async throws {
        let versions = try await versions()
        let offered = try manifest(versions[2])
        _ = try await collect(offered)
        // The same content under another name: the bundle exists, the index is new.
        let renamed = try await store.package(["z": noise(100_000, seed: 1), "y": [1]], "four")
        #expect(renamed.index.bundles == versions[0].index.bundles)
        let later = try await collect(offered, after: 30 * day)
        #expect(later.waiting.objects == 2)
        #expect(try store.files(of: renamed.index)["y"] == [1])
        #expect(try await collect(offered, after: 60 * day).removed == later.waiting)
        #expect(try store.names(in: ".") == [".unused", "a", "b", "d", "i"])
        #expect(try store.names(in: "a") == [])
    }
}

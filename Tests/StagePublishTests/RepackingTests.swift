import StageDigest
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Bundles of earlier versions of which a new version uses only a small part, and many small bundles.
@Suite(.directory)
struct RepackingTests {
    private let store: IndexedStore

    init() throws { store = try IndexedStore() }

    /// A version with two large files, and another one in which a new file replaces the second.
    private let old = ["a": noise(100_000, seed: 1), "gone": noise(150_000, seed: 2)]
    private let new = ["a": noise(100_000, seed: 1), "b": noise(70_000, seed: 3)]

    /// Packages both versions, after a change of the first one's bundle.
    private func versions(
        in store: IndexedStore,
        width: Int = 2,
        after change: (Directory, FilePath.Component) throws -> Void = { _, _ in }
    ) async throws -> (first: IndexedPack, second: IndexedPack) {
        let first = try await store.package(old, "old") { $0.width = width }
        try change(store.directory("b"), name(of: first.index.bundles[0]))
        let second = try await store.package(new, "new", after: first.index) { $0.width = width }
        return (first, second)
    }

    private func name(of bundle: ContentIndex.Bundle) -> FilePath.Component {
        FilePath.Component(stringLiteral: bundle.digest.description)
    }

    /// Returns the stored forms of the frames that two versions share, without their places.
    private func common(_ first: IndexedPack, _ second: IndexedPack) -> [ContentIndex.Frame] {
        let known = Set(first.index.frames.map(\.digest))
        return second.index.frames.filter { known.contains($0.digest) }
            .map { frame in
                var frame = frame
                (frame.bundle, frame.offset) = (0, 0)
                return frame
            }
    }

    private func collect(keeping packs: IndexedPack...) async throws {
        for pack in packs {
            let manifest = Manifest(
                application: try ApplicationID("net.example.app"),
                revision: 1,
                packs: [pack.pack(version: 1)]
            )
            _ = try await store.collect(keeping: [manifest], for: 0)
        }
    }

    @Test func aBundleOfWhichLittleIsUsedIsNotNamed() async throws {
        let (first, second) = try await versions(in: store)
        #expect(try store.files(of: second.index) == new)
        // The bundles contain the new frames, and then the copied ones separately.
        #expect(second.index.bundles.map(\.size) == [70_000, 100_000])
        #expect(second.newBytes == ByteCount(70_000))
        #expect(second.repackedBytes == ByteCount(100_000))
        #expect(common(second, first) == common(first, second))
        // A client with the first version downloads the new file only.
        let estimate = UpdateEstimate(from: first.index, to: second.index)
        #expect(estimate.bundleBytes == ByteCount(70_000) && estimate.requests == 1)
        // Neither of the two stores has remains of the run.
        #expect(try store.names(in: "b").count == 3)
        try await collect(keeping: second)
        #expect(try store.names(in: "b") == second.index.bundles.map { "\($0.digest)" }.sorted())
        #expect(try store.files(of: second.index) == new)
    }

    /// A bundle with a changed byte, one that was not copied completely, and one with bytes of another file.
    @Test(arguments: ["changed", "cut", "extended"])
    func aDamagedBundleIsNotUsed(damage: String) async throws {
        var kept = old
        kept["b"] = [1]
        for (version, files) in [("unchanged", old), ("updated", kept)] {
            let store = try IndexedStore("store-\(version)")
            let first = try await store.package(old, "old-\(version)")
            let name = name(of: first.index.bundles[0])
            var bytes = try store.bytes("b/\(name)")
            switch damage {
            case "changed": bytes[bytes.count / 3] ^= 1
            case "cut": bytes.removeLast()
            default: bytes.append(0)
            }
            try store.directory("b").write(bytes, to: name, durably: false)
            let second = try await store.package(files, version, after: first.index)
            // For unchanged files the same bundle is made again, which replaces the damaged one.
            let isReplaced = version == "unchanged"
            #expect((second.index == first.index) == isReplaced)
            #expect(
                second.damagedBundles == (isReplaced ? [] : [first.index.bundles[0].digest])
            )
            #expect(second.missingBundles == [])
            // Reads all bundles of the version, and compares them with their names.
            #expect(try store.files(of: second.index) == files)
        }
    }

    @Test(arguments: [(100_000, true), (100_001, false)])
    func aBundleOfWhichHalfIsUsedStays(gone: Int, stays: Bool) async throws {
        let kept = ["a": noise(100_000, seed: 1)]
        let first = try await store.package(
            kept.merging(["gone": noise(gone, seed: 2)]) { $1 },
            "old"
        )
        let second = try await store.package(kept, "new", after: first.index)
        #expect((second.index.bundles == first.index.bundles) == stays)
        #expect(second.repackedBytes == (stays ? .zero : ByteCount(100_000)))
        #expect(second.newBytes == .zero)
        #expect(try store.files(of: second.index) == kept)
    }

    /// A store of indexes alone is enough to package from.
    @Test func aMissingBundleIsStillNamed() async throws {
        let (first, second) = try await versions(in: store) { try $0.remove($1) }
        #expect(second.index.bundles.contains(first.index.bundles[0]))
        #expect(second.missingBundles == [first.index.bundles[0].digest])
        #expect(second.damagedBundles == [])
        #expect(second.repackedBytes == .zero && second.index.bundles.count == 2)
        let hidden = try store.names(in: "b").filter { $0.hasPrefix(".") }
        #expect(hidden == [])
    }

    /// One of two bundles is damaged.
    @Test func otherBundlesAreStillRepacked() async throws {
        let first = try await store.package(old, "old")
        var files = old
        for (name, seed) in [("c", 4), ("gone too", 5)] as [(String, UInt64)] {
            files[name] = noise(80_000 + 1000 * Int(seed), seed: seed)
        }
        let second = try await store.package(files, "more", after: first.index)
        #expect(
            second.index.bundles.count == 2 && second.index.bundles[0] == first.index.bundles[0]
        )
        let damaged = try store.directory("b").file(
            updatingExisting: FilePath(name(of: first.index.bundles[0]))
        )
        let bytes: [UInt8] = [1, 2, 3]
        try damaged?.write(bytes.span, at: 50_000)
        let kept = files.filter { ["a", "c"].contains($0.key) }
        let third = try await store.package(kept, "new", after: second.index)
        #expect(third.index.bundles.map(\.size) == [100_000, 84_000])
        #expect(third.damagedBundles == [first.index.bundles[0].digest])
        #expect(third.repackedBytes == ByteCount(84_000))
    }

    @Test func unchangedFilesKeepASparseBundle() async throws {
        let first = try await store.package(old, "old")
        let bundle = name(of: first.index.bundles[0])
        let folder = try store.directory("b")
        try folder.rename(bundle, to: "away", in: folder)
        let second = try await store.package(new, "new", after: first.index)
        try folder.rename("away", to: bundle, in: folder)
        let before = try store.names(in: "b") + store.names(in: "i")
        let again = try await store.package([:], "new", after: second.index)
        #expect(again.index == second.index && again.repackedBytes == .zero)
        #expect(try store.names(in: "b") + store.names(in: "i") == before)
        // A file with another name counts as changed.
        var renamed = new
        renamed["c"] = renamed.removeValue(forKey: "a")
        let third = try await store.package(renamed, "renamed", after: second.index)
        #expect(!third.index.bundles.contains(first.index.bundles[0]))
        #expect(third.newBytes == .zero && third.repackedBytes == ByteCount(100_000))
        #expect(try store.files(of: third.index) == renamed)
    }

    @Test func theSameFilesAndBaseGiveTheSameObjects() async throws {
        let (first, second) = try await versions(in: store)
        let before = try store.names(in: "b") + store.names(in: "i")
        #expect(try await store.package([:], "new", after: first.index) == second)
        #expect(try store.names(in: "b") + store.names(in: "i") == before)
        for width in [1, 3] {
            let other = try IndexedStore("store \(width)")
            let again = try await versions(in: other, width: width)
            #expect(again == (first, second))
            #expect(try other.names(in: "b") == store.names(in: "b"))
        }
    }

    /// The delta set of an update refers to frames by their positions in the index.
    @Test func deltaSetsFitARepackedVersion() async throws {
        let first = try await store.package(old, "old")
        var files = new
        files["changed"] = old["gone"]
        files["changed"]?[20_000] ^= 1
        files["changed"]?[120_000] ^= 1
        files["a"] = Array(noise(100_000, seed: 1).prefix(70_000))
        let second = try await store.package(files, "new", after: first.index)
        #expect(second.repackedBytes > .zero)
        #expect(try store.files(of: second.index) == files)
        let set = try store.deltaSet(of: second)
        let known = Set(first.index.frames.map(\.digest))
        #expect(set.frames.allSatisfy { !known.contains(second.index.frames[$0.position].digest) })
        // New frames come first, those without delta frames before those with; copied frames come last.
        let order = second.index.frames.indices.sorted { left, right in
            let (left, right) = (second.index.frames[left], second.index.frames[right])
            return (left.bundle, left.offset) < (right.bundle, right.offset)
        }
        let made = Set(set.frames.map(\.position))
        let kinds = order.map { position in
            if known.contains(second.index.frames[position].digest) { return 2 }
            return made.contains(position) ? 1 : 0
        }
        #expect(kinds == kinds.sorted() && Set(kinds) == [0, 1, 2])
    }

    @Test func manySmallBundlesBecomeOne() async throws {
        var files: [String: [UInt8]] = [:]
        var packs: [IndexedPack] = []
        for number in 0..<36 {
            files["\(number)"] = noise(66_000, seed: UInt64(number))
            let pack = try await store.package(
                files,
                "version \(number)",
                after: packs.last?.index ?? ContentIndex()
            ) { $0.makesDeltas = false }
            packs.append(pack)
            #expect(pack.newBytes == ByteCount(66_000))
        }
        #expect(packs.allSatisfy { $0.index.bundles.count <= 17 })
        let last = try #require(packs.last)
        #expect(try store.files(of: last.index) == files)
        // Half of the bundles are not repacked, so that only some versions copy frames.
        let copied = packs.filter { $0.repackedBytes > .zero }
        #expect(copied.count == 3)
        let bytes = copied.reduce(ByteCount.zero) { $0 + $1.repackedBytes }
        #expect(bytes < ByteCount(66_000 * 36))
        let estimate = UpdateEstimate(from: packs[34].index, to: last.index)
        #expect(estimate.bundleBytes == ByteCount(66_000))
    }
}

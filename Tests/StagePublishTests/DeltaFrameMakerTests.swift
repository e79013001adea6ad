import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StagePublish

@Suite(.directory)
struct DeltaFrameMakerTests {
    private let store: IndexedStore
    private let old = Self.trees.old
    private let new = Self.trees.new

    init() throws { store = try IndexedStore() }

    private static let trees = {
        var old: [String: [UInt8]] = [
            "large": noise(500_000), "gone": noise(90_000, seed: 3), "same": noise(70_000, seed: 4),
        ]
        for number in 0..<60 { old["small/\(number)"] = noise(2000 + number, seed: UInt64(number)) }
        var new = old
        new["gone"] = nil
        // Changes each of its frames.
        for offset in stride(from: 5000, to: 500_000, by: 10_000) { new["large"]?[offset] ^= 1 }
        new["large"]?.insert(contentsOf: noise(3000, seed: 5), at: 200_000)
        for number in 0..<60 { new["small/\(number)"]?[1000] ^= 1 }
        new["nothing like it"] = noise(80_000, seed: 6)
        // Content in a file whose name contains another hash.
        old["app.1a2b3c.js"] = noise(300_000, seed: 7)
        var app = noise(300_000, seed: 7)
        old["app.1a2b3c.js"] = app
        for offset in stride(from: 5000, to: 300_000, by: 20_000) { app[offset] ^= 1 }
        new["app.d4e5f6.js"] = app
        return (old: old, new: new)
    }()

    private func path(of pack: IndexedPack) throws -> FilePath {
        try store.directory().path.appending(pack.reference.url)
    }

    @Test func changedFramesAreStoredAsDeltas() async throws {
        let first = try await store.package(old, "old")
        let second = try await store.package(new, "new", after: first.index)
        let delta = try #require(second.reference.deltas.first)
        let frames = try #require(delta.frames)
        let object = try store.bytes("d/\(frames.digest)")
        #expect(ByteCount(object.count) == frames.size && Digest(of: object) == frames.digest)
        let table = Array(object.prefix(Int(frames.tableSize.rawValue)))
        #expect(Digest(of: table) == frames.tableDigest)
        let set = try DeltaSet(decodingTable: table)
        #expect(set.new == second.reference.contentDigest && set.old == delta.base)
        try set.check(from: first.index, to: second.index)
        #expect(frames.size < ByteCount(20_000) && second.newBytes > ByteCount(500_000))
        // Each delta frame decompresses to its frame with the old files, which a client has.
        var decompressor = FrameDecompressor()
        for (frame, range) in zip(set.frames, set.ranges(afterTable: table.count)) {
            let stored = Array(object[Int(range.lowerBound)..<Int(range.upperBound)])
            #expect(Digest(of: stored) == frame.digest)
            let window = try set.windows[frame.window].segments.flatMap { segment in
                let file = try #require(old[first.index.entries[segment.entry].path.text])
                return Array(file[Int(segment.offset)...].prefix(segment.length))
            }
            let expected = second.index.frames[frame.position]
            let content = try decompressor.decompress(
                stored.span,
                after: window.span,
                to: expected.length
            )
            #expect(Digest(of: content) == expected.digest)
        }
        // The set has all frames except those without similar content.
        let missing = IndexDifference(from: first.index, to: second.index).frames
        let made = Set(set.frames.map(\.position))
        let left = missing.filter { !made.contains($0) }
        #expect(left.reduce(0) { $0 + second.index.frames[$1].length } <= 85_000)
    }

    @Test func theSameVersionsGiveTheSameSet() async throws {
        let first = try await store.package(old, "old")
        let second = try await store.package(new, "new", after: first.index)
        for width in [1, 3] {
            let store = try IndexedStore("store \(width)")
            _ = try await store.package(old, "old")
            let other = try await store.package(new, "new", after: first.index) { $0.width = width }
            #expect(other == second)
        }
    }

    @Test func aStoreTellsWhichSetIsOfWhichVersions() async throws {
        let first = try await store.package(old, "old")
        let second = try await store.package(new, "new", after: first.index)
        var newer = new
        newer["large"]?[70_001] ^= 1
        let third = try await store.package(newer, "newer", after: second.index)
        #expect(try StoredIndex(at: path(of: first)).deltaSets.isEmpty)
        for (pack, before) in [(second, first), (third, second)] {
            let stored = try StoredIndex(at: path(of: pack))
            #expect(stored.reference == pack.reference)
            #expect(Array(stored.deltaSets.keys) == [before.reference.contentDigest])
        }
    }

    @Test func aSetThatIsDamagedIsNotOffered() async throws {
        let first = try await store.package(old, "old")
        let second = try await store.package(new, "new", after: first.index)
        let frames = try #require(second.reference.deltas.first?.frames)
        let object = try store.bytes("d/\(frames.digest)")
        let directory = try store.directory("d")
        let name = FilePath.Component(stringLiteral: "\(frames.digest)")
        for position in [0, 20, 75, 100, object.count - 1] {
            var bent = object
            bent[position] ^= 1
            try directory.write(bent, to: name, durably: false)
            let stored = try StoredIndex(at: path(of: second))
            #expect(stored.deltaSets.isEmpty && stored.reference.deltas[0].frames == nil)
        }
        try directory.write(Array(object.dropLast()), to: name, durably: false)
        #expect(try StoredIndex(at: path(of: second)).deltaSets.isEmpty)
        try directory.write(object, to: name, durably: false)
        #expect(try StoredIndex(at: path(of: second)).reference == second.reference)
    }

    @Test func withoutTheOldBundlesNothingIsStoredAsDifferences() async throws {
        let first = try await store.package(old, "old")
        let other = try IndexedStore("elsewhere")
        let elsewhere = try await other.package(new, "new", after: first.index)
        #expect(elsewhere.reference.deltas.count == 1)
        #expect(elsewhere.reference.deltas[0].frames == nil)
        #expect(throws: (any Error).self) { try other.directory("d") }
        let told = try await store.package(new, "told", after: first.index) {
            $0.makesDeltas = false
        }
        #expect(told.reference.deltas[0].frames == nil)
    }

    /// A damaged bundle in the store counts as missing.
    @Test func damagedBundlesYieldNoDeltas() async throws {
        let first = try await store.package(old, "old")
        let bundles = try store.directory("b")
        for entry in try bundles.entries() {
            var content = try store.bytes("b/\(entry.name)")
            for offset in stride(from: 0, to: content.count, by: 5000) { content[offset] ^= 1 }
            try bundles.write(content, to: entry.name, durably: false)
        }
        let second = try await store.package(new, "new", after: first.index)
        #expect(second.reference.deltas[0].frames == nil)
    }

    /// A window that starts like a Zstandard dictionary is not treated as one.
    @Test func contentThatLooksLikeADictionaryIsContent() async throws {
        let before = [0x37, 0xA4, 0x30, 0xEC] + noise(300_000)
        var after = before
        after[150_000] ^= 1
        let first = try await store.package(["file": before], "old")
        let second = try await store.package(["file": after], "new", after: first.index)
        #expect(second.newBytes > ByteCount(16_000))
    }
}

struct DeltaPlanTests {
    /// An index of files with frames of 64 KiB each, which are identified by strings.
    private func index(_ files: [(path: String, frames: [String])]) throws -> ContentIndex {
        var index = ContentIndex(bundles: [.init(digest: Digest(of: [1]), size: 256 << 20)])
        var known: [String: Int] = [:]
        for (path, names) in files {
            let frames = names.map { name in
                if let position = known[name] { return position }
                index.frames.append(
                    ContentIndex.Frame(
                        digest: Digest(of: Array(name.utf8)),
                        length: 64 << 10,
                        compressed: nil,
                        bundle: 0,
                        offset: Int64(index.frames.count) << 16
                    )
                )
                known[name] = index.frames.count - 1
                return index.frames.count - 1
            }
            let file = ContentIndex.File(
                isExecutable: false,
                size: Int64(names.count) << 16,
                digest: Digest(of: Array(names.joined(separator: " ").utf8)),
                content: .frames(frames)
            )
            index.entries.append(.init(path: try ContentPath(path), kind: .file(file)))
        }
        return index
    }

    private func numbers(_ range: Range<Int>, _ mark: String = "") -> [String] {
        range.map { "\($0)\(mark)" }
    }

    @Test func windowsFollowWhereTheContentIs() throws {
        let old = try index([("a", numbers(0..<1000))])
        // The first 300 frames are new; then every tenth has changed.
        let changed = (0..<1000).map { $0 % 10 == 5 ? "\($0)'" : "\($0)" }
        let new = try index([("a", numbers(0..<300, "new") + changed)])
        let plan = DeltaPlan(from: old, to: new)
        #expect(Set(plan.groups.flatMap(\.frames)).count == 400)
        for group in plan.groups {
            #expect(group.window.segments.count == 1)
            let segment = group.window.segments[0]
            #expect(segment.length <= IndexLimits.windowLength && segment.offset >= 0)
            #expect(segment.offset + Int64(segment.length) <= 1000 << 16)
            for frame in group.frames where frame >= 300 {
                let offset = Int64(frame - 300) << 16
                // The segment includes a megabyte around the position.
                #expect(segment.offset <= max(0, offset - 1_000_000))
                let end = min(1000 << 16, offset + 1_065_536)
                #expect(end <= segment.offset + Int64(segment.length))
            }
        }
        #expect(plan == DeltaPlan(from: old, to: new))
    }

    @Test(arguments: [
        ("a/b.png", "a/b.png"), ("new/y/same", "old/y/same"), ("lib-1.2.so", "lib-1.1.so"),
    ])
    func aFileComesFromTheOneThatIsMostLikeIt(path: String, from: String) throws {
        let names = ["a/b.png", "a/c.png", "lib-1.1.so", "old/x/same", "old/y/same"]
        let old = try index(names.map { ($0, [$0]) })
        let new = try index([(path, ["other"])])
        let groups = DeltaPlan(from: old, to: new).groups
        let index = try #require(names.firstIndex(of: from))
        let segment = DeltaSet.Segment(entry: index, offset: 0, length: 65_536)
        #expect(groups == [.init(window: .init(segments: [segment]), frames: [0])])
    }

    @Test(arguments: ["a/d.png", "b-7.png", "lib.txt"])
    func aFileThatIsLikeNoneHasNoWindow(path: String) throws {
        let old = try index([("a/b-1.png", ["1"]), ("a/b-2.png", ["2"])])
        #expect(DeltaPlan(from: old, to: try index([(path, ["other"])])).groups.isEmpty)
    }

    @Test func existingFramesAreNotPlanned() throws {
        let old = try index([("a", numbers(0..<10))])
        #expect(DeltaPlan(from: old, to: old).groups.isEmpty)
        let new = try index([("b", numbers(5..<10) + numbers(0..<3))])
        #expect(DeltaPlan(from: old, to: new).groups.isEmpty)
    }
}

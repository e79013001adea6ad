import StageArchive
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Archives of indexed packs.
@Suite(.directory)
struct SolidArchiveTests {
    private let store: IndexedStore
    /// Files that differ only in one byte every few kilobytes.
    private let files: [String: [UInt8]] = {
        var files: [String: [UInt8]] = ["empty": [], "caf\u{E9}/a": [1], "cafe\u{301}/b": [2]]
        for number in 0..<12 as Range<UInt8> {
            var bytes = noise(100_000)
            for offset in stride(from: 0, to: bytes.count, by: 4096) { bytes[offset] = number }
            files["large/\(number)"] = bytes
        }
        return files
    }()

    init() throws { store = try IndexedStore() }

    private func inode(of archive: PackArchive) throws -> UInt64? {
        try store.directory().status(FilePath(archive.url))?.inode
    }

    @Test func anArchiveIsNamedByItsBytesAndTheirIndex() async throws {
        let pack = try await store.package(files, "one")
        let archive = try #require(pack.archive)
        let bytes = try store.bytes(archive.url)
        #expect(Digest(of: bytes) == archive.digest)
        #expect(archive.url == "a/\(archive.digest).of.\(pack.reference.contentDigest)")
        #expect(archive.size == ByteCount(bytes.count))
        #expect(archive.size + archive.size < pack.reference.bundleSize)
        // The window is at least as large as the content, and at most twice as large.
        #expect(archive.windowSize == .mebibytes(2))
        #expect(ZstandardHeader(bytes)?.windowSize == 2 << 20)
        #expect(try store.names(in: "a") == [String(archive.url.dropFirst(2))])
        let stored = try StoredIndex(at: store.root.path.appending("store/\(pack.reference.url)"))
        #expect(stored.archive == archive)
        #expect(pack.pack(version: 1).archive == archive)
    }

    @Test func theNumberOfProcessorsLeavesNoMark() async throws {
        let first = try await store.package(files, "one") { $0.width = 1 }
        let other = try IndexedStore("other")
        let second = try await other.package(files, "two") { $0.width = 5 }
        #expect(first.archive != nil && first.archive == second.archive)
    }

    @Test func anArchiveOfIncompressibleFilesIsCompressedFast() async throws {
        let films = ["film 1": noise(600_000), "film 3": noise(600_000, seed: 3)]
        let all = films.merging(["film 2": noise(64 << 10, seed: 2)]) { first, _ in first }
        var archives: [PackArchive?] = []
        for level in [19, 1] {
            let store = try IndexedStore("store \(level)")
            let old = try await store.package(all, "all \(level)") { $0.level = level }
            // The archive would be no smaller than the frames.
            #expect(old.archive == nil)
            let pack = try await store.package(films, "films \(level)", after: old.index) {
                $0.level = level
            }
            // The removed film was between the frames of the others.
            archives.append(pack.archive)
            #expect(pack.archive != nil)
        }
        #expect(archives[0] == archives[1])
    }

    @Test func anArchiveThatIsThereIsLeftAlone() async throws {
        let first = try #require(try await store.package(files, "one").archive)
        let inode = try inode(of: first)
        let again = try await store.package(files, "two") { $0.level = 3 }
        #expect(again.archive == first)
        #expect(try self.inode(of: first) == inode)
        // The archive does not depend on the packager and its level.
        let better = try await store.package(files, "three") { $0.level = 1 }
        #expect(better.archive == first)
        // An archive whose content does not match its name is created again.
        let name = try #require(FilePath(first.url).lastComponent)
        try store.directory("a").write([1, 2, 3], to: name, durably: false)
        #expect(try await store.package(files, "four").archive == first)
        #expect(Digest(of: try store.bytes(first.url)) == first.digest)
    }

    /// The delta leads to the index that a client needs after it has unpacked the archive.
    @Test func theIndexIsADeltaFromTheFilesOfTheArchive() async throws {
        let pack = try await store.package(files, "one")
        let delta = try #require(pack.reference.fileTableDelta)
        let bytes = try store.bytes(delta.url)
        #expect(Digest(of: bytes) == delta.digest && ByteCount(bytes.count) == delta.size)
        #expect(delta.url == "i/\(delta.digest).of.\(pack.reference.contentDigest)")
        #expect(delta.size < pack.reference.size)
        var decompressor = FrameDecompressor()
        let index = pack.index.encoded()
        let table = ContentIndex(
            entries: pack.index.entries.map { entry in
                guard case .file(var file) = entry.kind else { return entry }
                file.content = .frames([])
                return ContentIndex.Entry(path: entry.path, kind: .file(file))
            }
        ).encodedFileTable()
        let restored = try decompressor.decompress(bytes.span, after: table.span, to: index.count)
        #expect(restored == index)
        let stored = try StoredIndex(at: store.root.path.appending("store/\(pack.reference.url)"))
        #expect(stored.reference.fileTableDelta == delta)
        let inode = try store.directory().status(FilePath(delta.url))?.inode
        let again = try await store.package(files, "two")
        #expect(again.reference.fileTableDelta == delta)
        #expect(try store.directory().status(FilePath(delta.url))?.inode == inode)
    }

    @Test func noDeltaOfTheIndexIsNamedWithoutItsArchiveOrIfItIsDamaged() async throws {
        let without = try await store.package(files, "off") { $0.makesArchive = false }
        #expect(without.reference.fileTableDelta == nil)
        let pack = try await store.package(files, "one")
        let path = store.root.path.appending("store/\(pack.reference.url)")
        let delta = try #require(pack.reference.fileTableDelta)
        let name = try #require(FilePath(delta.url).lastComponent)
        try store.directory("i").write([1, 2, 3], to: name, durably: false)
        #expect(try StoredIndex(at: path).reference.fileTableDelta == nil)
        #expect(try await store.package(files, "two").reference.fileTableDelta == delta)
        let archive = try #require(pack.archive)
        try store.directory("a").remove(try #require(FilePath(archive.url).lastComponent))
        #expect(try StoredIndex(at: path).reference.fileTableDelta == nil)
    }

    @Test func nothingIsWrittenForAnArchiveOfIncompressibleFilesThatSavesNothing() async throws {
        let files = ["a": noise(1 << 21), "b": [1]]
        #expect(try await store.package(files, "noise").archive == nil)
        #expect(try store.names(in: ".") == ["b", "i"])
    }

    @Test func noArchiveIsMadeIfItSavesNothing() async throws {
        let halves = noise(60_000, mask: 0x0F0F_0F0F_0F0F_0F0F)
        #expect(try await store.package(["a": halves], "halves").archive == nil)
        #expect(try await store.package(["a": noise(100_000)], "noise").archive == nil)
        #expect(try await store.package(files, "off") { $0.makesArchive = false }.archive == nil)
        #expect(try store.names(in: "a") == [])
    }

    @Test func filesOfAKilledRunAreRemoved() async throws {
        _ = try await store.package(files, "one")
        try store.directory("a").write([1], to: ".archive.1", durably: false)
        _ = try await store.package(files, "two")
        #expect(try store.names(in: "a").count == 1)
    }

    @Test(arguments: [
        ("i/1", "a/"), ("store/i/1", "store/a/"), ("https://h/s/i/1", "https://h/s/a/"),
        ("/i/1", "/a/"), ("1", "../a/"),
    ])
    func theArchiveIsBesideTheIndex(url: String, folder: String) async throws {
        let pack = try await store.package(files, "one")
        let archive = try #require(pack.archive)
        let stored = try StoredIndex(at: store.root.path.appending("store/\(pack.reference.url)"))
        let json = """
            {"assetPackID": "a", "downloadPolicy": {"onDemand": {}}, \
            "fileSelectors": [{"file": "a"}]}
            """
        let recipe = try Recipe(json: Array(json.utf8))
        let offered = stored.pack(of: recipe, version: 1, url: url)
        #expect(offered.archive?.url == folder + archive.url.dropFirst(2))
        #expect(offered.directoryCount == pack.index.directoryCount)
        let delta = try #require(pack.reference.fileTableDelta)
        #expect(offered.index?.fileTableDelta?.url == folder.dropLast(2) + delta.url)
    }

    @Test func anArchiveOfNoManifestGoes() async throws {
        let first = try await store.package(files, "one")
        let second = try await store.package(
            files.merging(["new": noise(1000)]) { $1 },
            "two",
            after: first.index
        )
        let manifest = Manifest(
            application: try ApplicationID("net.example.app"),
            revision: 1,
            packs: [second.pack(version: 2)]
        )
        _ = try await store.collect(keeping: [manifest], for: 0)
        let kept = try #require(second.archive)
        #expect(first.archive != nil && first.archive != kept)
        #expect(try store.names(in: "a") == [String(kept.url.dropFirst(2))])
        let deltas = try store.names(in: "i").filter { $0.contains(".of.") }
        let delta = try #require(second.reference.fileTableDelta)
        #expect(deltas == [String(delta.url.dropFirst(2))])
    }

    /// Windows from the smallest to the largest that decoders accept.
    @Test(
        arguments: [
            (0, 1 << 10), (1024, 1 << 10), (1025, 1 << 11), (1 << 20, 1 << 20),
            ((1 << 20) + 1, 1 << 21), ((1 << 27) - 1, 1 << 27), (1 << 40, 1 << 27),
        ] as [(Int64, Int)]
    )
    func theWindowHasAllOfTheContent(count: Int64, window: Int) {
        #expect(StreamCompressor.window(for: count) == window)
    }
}

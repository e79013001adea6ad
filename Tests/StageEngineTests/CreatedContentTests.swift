import StageContainer
import StageDigest
import StageIndex
import StageModel
import SystemPackage
import Testing

@testable import StageEngine
@testable import StageSystem

/// The space and the inodes that a pack takes by its index.
struct CreatedContentTests {
    /// Two files in four directories, a link, and an empty directory.
    private func sample() throws -> ContentIndex {
        let digest = Digest(of: [])
        func file(_ path: String, size: Int64) throws -> ContentIndex.Entry {
            let file = ContentIndex.File(
                isExecutable: false,
                size: size,
                digest: digest,
                content: .part(frame: 0, offset: 0)
            )
            return ContentIndex.Entry(path: try ContentPath(path), kind: .file(file))
        }
        let link = try ContentPath("a/b/link")
        return ContentIndex(entries: [
            try file("a/b/c/empty", size: 0),
            try file("a/b/file", size: 4097),
            ContentIndex.Entry(path: link, kind: .link(to: try LinkTarget("file", of: link))),
            ContentIndex.Entry(path: try ContentPath("d"), kind: .directory),
        ])
    }

    @Test func directoriesCountAsFilesDo() throws {
        let index = try sample()
        #expect(index.directoryCount == 4)
        let all = CreatedContent(of: index, directories: 4, after: nil, areFilesUnpacked: false)
        #expect(all == CreatedContent(space: ByteCount(6 * 4096), inodeCount: 7))
        let rest = CreatedContent(of: index, directories: 4, after: nil, areFilesUnpacked: true)
        #expect(rest == CreatedContent(space: ByteCount(4 * 4096), inodeCount: 5))
    }

    @Test func contentThatDoesNotFitIsRefused() throws {
        let content = CreatedContent(space: ByteCount(4096), inodeCount: 36)
        for free in [FreeSpace(bytes: 4096, files: 100), FreeSpace(bytes: 4096, files: nil)] {
            #expect(throws: Never.self) { try content.check(against: free, in: "content") }
        }
        let needed = ByteCount(4096) + Planner.reserve
        #expect(throws: StageError.noSpace(needed: needed, available: ByteCount(4095))) {
            try content.check(against: FreeSpace(bytes: 4095, files: nil), in: "content")
        }
        let error = FileError("create 36 files in", path: "content", errno: .noSpace)
        #expect(throws: StageError.container(.file(error))) {
            try content.check(against: FreeSpace(bytes: 4096, files: 99), in: "content")
        }
    }

    /// An indexed pack of two files, or a pack with an archive alone.
    private func pack(isIndexed: Bool) throws -> Pack {
        let digest = Digest(of: [])
        let size = ByteCount(1000)
        let archive = PackArchive(url: "a", format: .tar, size: size, digest: digest)
        let index = PackIndex(
            url: "i/1",
            size: size,
            digest: digest,
            contentSize: size,
            contentDigest: digest,
            bundleSize: size
        )
        return Pack(
            id: try PackID("levels"),
            version: 1,
            policy: .onDemand,
            archive: isIndexed ? nil : archive,
            index: isIndexed ? index : nil,
            installedSize: ByteCount(5000),
            fileCount: 2
        )
    }

    private func planner(_ pack: Pack, freeSpace: ByteCount? = nil) throws -> Planner {
        let manifest = Manifest(
            application: try ApplicationID("net.example.game"),
            revision: 1,
            packs: [pack]
        )
        return Planner(manifest: manifest, freeSpace: freeSpace)
    }

    /// The space of the files by the manifest alone.
    private static let bound = ByteCount(5000 + 3 * 4096)

    /// The directories are added to what the manifest tells.
    @Test func aPlanCountsTheDirectoriesOfAnIndex() throws {
        let pack = try pack(isIndexed: true)
        var planner = try planner(pack)
        #expect(planner.space(for: pack) == Self.bound)
        planner.spaceByIndex[pack.id] = SpaceByIndex(
            total: .mebibytes(100),
            directories: .mebibytes(90)
        )
        #expect(planner.space(for: pack) == Self.bound + .mebibytes(90))
        let total = ByteCount(1000)
        planner.spaceByIndex[pack.id] = SpaceByIndex(total: total, directories: .zero)
        #expect(planner.space(for: pack) == total)
    }

    /// Directories that both the manifest and the index name count once.
    @Test func aPlanCountsTheDirectoriesThatAManifestStates() throws {
        var pack = try pack(isIndexed: true)
        pack.directoryCount = 10
        var planner = try planner(pack)
        let expected = Self.bound + ByteCount(10 * 4096)
        #expect(planner.space(for: pack) == expected)
        planner.spaceByIndex[pack.id] = SpaceByIndex(
            total: .mebibytes(100),
            directories: ByteCount(10 * 4096)
        )
        #expect(planner.space(for: pack) == expected)
        #expect(StoredGeneration.size(of: pack) == ByteCount(5000 + 11 * 4096))
    }

    @Test(arguments: [false, true])
    func aPlanIsRefusedForTheDirectoriesAlone(isIndexed: Bool) throws {
        var pack = try pack(isIndexed: isIndexed)
        let archive = pack.archive?.size ?? .zero
        let needed = Self.bound + archive + ByteCount(10 * 4096) + Planner.reserve
        func decision(_ freeSpace: ByteCount) throws -> Plan.Decision? {
            let planner = try planner(pack, freeSpace: freeSpace)
            return planner.plan(for: .packs([pack.id])).entries.first?.decision
        }
        let less = needed - ByteCount(1)
        #expect(try decision(less) == .stage(.missing))
        pack.directoryCount = 10
        #expect(try decision(less) == .refuse(.noSpace(needed: needed, available: less)))
        #expect(try decision(needed) == .stage(.missing))
    }

    /// An index cannot show that a pack has fewer directories than the manifest states.
    @Test func theLeastSpaceOfAPackHasItsDirectories() throws {
        var pack = try pack(isIndexed: true)
        pack.directoryCount = 1000
        let planner = try planner(pack, freeSpace: .zero)
        let least = planner.assumingLeastSpace(for: .packs([pack.id]))
        #expect(least.space(for: pack) == ByteCount(5000 + 1000 * 4096))
    }

    @Test func anArchiveIsCountedIfTheManifestStatesItsDirectories() throws {
        var pack = try pack(isIndexed: false)
        #expect(CreatedContent(ofArchiveOf: pack) == nil)
        pack.directoryCount = 10
        let expected = CreatedContent(space: ByteCount(5000 + 10 * 4096), inodeCount: 12)
        #expect(CreatedContent(ofArchiveOf: pack) == expected)
    }
}

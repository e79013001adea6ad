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
            #expect(throws: Never.self) { try content.check(against: free) }
        }
        let needed = ByteCount(4096) + Planner.reserve
        #expect(throws: StageError.noSpace(needed: needed, available: ByteCount(4095))) {
            try content.check(against: FreeSpace(bytes: 4095, files: nil))
        }
        #expect(throws: StageError.noInodes(needed: 100, available: 99)) {
            try content.check(against: FreeSpace(bytes: 4096, files: 99))
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
        #expect(planner.inodes(for: pack) == 3 + Planner.inodesOfRecords)
        planner.spaceByIndex[pack.id] = SpaceByIndex(
            total: FileSystemUsage(bytes: .mebibytes(100), inodes: 30_000),
            directoryCount: 20_000
        )
        #expect(planner.space(for: pack) == Self.bound + ByteCount(20_000 * 4096))
        #expect(planner.inodes(for: pack) == 20_003 + Planner.inodesOfRecords)
        let total = FileSystemUsage(bytes: ByteCount(1000), inodes: 1)
        planner.spaceByIndex[pack.id] = SpaceByIndex(total: total, directoryCount: 0)
        #expect(planner.space(for: pack) == total.bytes)
        #expect(planner.inodes(for: pack) == 1 + Planner.inodesOfRecords)
    }

    /// Directories that both the manifest and the index name count once.
    @Test func aPlanCountsTheDirectoriesThatAManifestStates() throws {
        var pack = try pack(isIndexed: true)
        pack.directoryCount = 10
        var planner = try planner(pack)
        let expected = Self.bound + ByteCount(10 * 4096)
        #expect(planner.space(for: pack) == expected)
        #expect(planner.inodes(for: pack) == 12 + Planner.inodesOfRecords)
        planner.spaceByIndex[pack.id] = SpaceByIndex(
            total: FileSystemUsage(bytes: .mebibytes(100), inodes: 30_000),
            directoryCount: 10
        )
        #expect(planner.space(for: pack) == expected)
        #expect(planner.inodes(for: pack) == 12 + Planner.inodesOfRecords)
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

    /// The directories that the manifest states, and the inodes of the content; without a number, one directory is counted.
    @Test(arguments: [false, true], [(10, 12), (nil, 3)] as [(Int?, Int)])
    func aPlanIsRefusedForTheInodesAlone(
        isIndexed: Bool,
        row: (directories: Int?, content: Int)
    ) throws {
        var pack = try pack(isIndexed: isIndexed)
        pack.directoryCount = row.directories
        let id = pack.id
        var planner = try planner(pack, freeSpace: .mebibytes(100))
        func decision(_ planner: Planner) -> Plan.Decision? {
            planner.plan(for: .packs([id])).entries.first?.decision
        }
        #expect(decision(planner) == .stage(.missing))
        let needed = row.content + Planner.inodesOfRecords + AvailableSpace.reservedInodes
        planner.freeInodes = needed - 1
        #expect(decision(planner) == .refuse(.noInodes(needed: needed, available: needed - 1)))
        planner.freeInodes = needed
        #expect(decision(planner) == .stage(.missing))
    }

    /// Inodes that one pack takes are not there for the next one.
    @Test func packsOfAPlanShareTheInodes() throws {
        let first = try pack(isIndexed: false)
        var second = first
        second.id = try PackID("other")
        var planner = try planner(first, freeSpace: .mebibytes(100))
        planner.manifest.packs.append(second)
        let one = 3 + Planner.inodesOfRecords
        let (needed, available) = (one + AvailableSpace.reservedInodes, 2 * one + 63)
        planner.freeInodes = available
        let decisions = planner.plan(for: .packs([first.id, second.id])).entries.map(\.decision)
        let refusal = Plan.Refusal.noInodes(needed: needed, available: available - one)
        #expect(decisions == [.stage(.missing), .refuse(refusal)])
    }

    /// An update whose files are hard links needs few inodes: its index is fetched before it is refused.
    @Test func theIndexOfAPackThatLacksInodesIsRead() throws {
        var pack = try pack(isIndexed: true)
        pack.fileCount = 1000
        pack.directoryCount = 10
        var planner = try planner(pack, freeSpace: .mebibytes(1000))
        #expect(planner.packsToMeasure(for: .packs([pack.id])).isEmpty)
        planner.freeInodes = 500
        #expect(planner.packsToMeasure(for: .packs([pack.id])).map(\.id) == [pack.id])
    }

    /// The files of an interrupted run need no inodes again; without a number of directories, its own do not count.
    @Test(arguments: [(10, 12 - 1 - 4), (nil, 3 - 1)] as [(Int?, Int)])
    func unfinishedContentNeedsNoInodesAgain(row: (directories: Int?, rest: Int)) throws {
        var pack = try pack(isIndexed: true)
        pack.directoryCount = row.directories
        var planner = try planner(pack)
        planner.unfinished[pack.id] = UnfinishedContent(
            space: ByteCount(1000),
            fileCount: 1,
            directoryCount: 4
        )
        #expect(planner.inodes(for: pack) == row.rest + Planner.inodesOfRecords)
    }

    /// An index cannot show that a pack has fewer directories than the manifest states.
    @Test func theLeastSpaceOfAPackHasItsDirectories() throws {
        var pack = try pack(isIndexed: true)
        pack.directoryCount = 1000
        let planner = try planner(pack, freeSpace: .zero)
        let least = planner.assumingLeastSpace(for: .packs([pack.id]))
        #expect(least.space(for: pack) == ByteCount(5000 + 1000 * 4096))
        #expect(least.inodes(for: pack) == 1002 + Planner.inodesOfRecords)
    }

    @Test func anArchiveIsCountedWithTheDirectoriesThatTheManifestStates() throws {
        var pack = try pack(isIndexed: false)
        let least = CreatedContent(space: ByteCount(5000), inodeCount: 3)
        #expect(CreatedContent(ofArchiveOf: pack) == least)
        pack.directoryCount = 10
        let expected = CreatedContent(space: ByteCount(5000 + 10 * 4096), inodeCount: 12)
        #expect(CreatedContent(ofArchiveOf: pack) == expected)
    }
}

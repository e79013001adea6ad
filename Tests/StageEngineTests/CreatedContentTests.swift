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
        let all = CreatedContent(of: index, after: nil, areFilesUnpacked: false)
        #expect(all == CreatedContent(space: ByteCount(6 * 4096), inodeCount: 7))
        let rest = CreatedContent(of: index, after: nil, areFilesUnpacked: true)
        #expect(rest == CreatedContent(space: ByteCount(4 * 4096), inodeCount: 5))
    }

    @Test func contentThatDoesNotFitIsRefused() throws {
        let content = CreatedContent(space: ByteCount(4096), inodeCount: 36)
        for free in [FreeSpace(bytes: 4096, files: 100), FreeSpace(bytes: 4096, files: nil)] {
            #expect(throws: Never.self) { try content.check(against: free, in: "content") }
        }
        #expect(throws: StageError.noSpace(needed: ByteCount(4096), available: ByteCount(4095))) {
            try content.check(against: FreeSpace(bytes: 4095, files: nil), in: "content")
        }
        let error = FileError("create 36 files in", path: "content", errno: .noSpace)
        #expect(throws: StageError.container(.file(error))) {
            try content.check(against: FreeSpace(bytes: 4096, files: 99), in: "content")
        }
    }

    /// The directories are added to what the manifest tells.
    @Test func aPlanCountsTheDirectoriesOfAnIndex() throws {
        let digest = Digest(of: [])
        let size = ByteCount(1000)
        let pack = Pack(
            id: try PackID("levels"),
            version: 1,
            policy: .onDemand,
            archive: nil,
            index: PackIndex(
                url: "i/1",
                size: size,
                digest: digest,
                contentSize: size,
                contentDigest: digest,
                bundleSize: size
            ),
            installedSize: ByteCount(5000),
            fileCount: 2
        )
        let manifest = Manifest(
            application: try ApplicationID("net.example.game"),
            revision: 1,
            packs: [pack]
        )
        var planner = Planner(manifest: manifest)
        let bound = ByteCount(5000 + 3 * 4096)
        #expect(planner.space(for: pack) == bound)
        planner.spaceByIndex[pack.id] = SpaceByIndex(
            total: .mebibytes(100),
            directories: .mebibytes(90)
        )
        #expect(planner.space(for: pack) == bound + .mebibytes(90))
        planner.spaceByIndex[pack.id] = SpaceByIndex(total: size, directories: .zero)
        #expect(planner.space(for: pack) == size)
    }
}

import StageArchive
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The totals of an archive that is about to be offered.
@Suite(.directory)
struct ArchiveInventoryTests {
    private func inventory(_ entries: [TarBuilder.Entry]) throws -> ArchiveInventory {
        var tar = TarBuilder()
        for entry in entries { tar.add(entry) }
        tar.finish()
        let root = try TemporaryDirectory.required()
        _ = try root.remove("archive.tar")
        let archive = try root.file(creating: "archive.tar")
        try archive.write(tar.bytes.span, at: 0)
        return try ArchiveInventory(
            of: root.path.appending("archive.tar"),
            format: .tar,
            decoding: .process(
                executable: try Bench.service,
                arguments: ["unpack-service"]
            )
        )
    }

    @Test(arguments: [
        ([TarBuilder.Entry("a"), .init("a")], ArchiveError.collision(entry: "a", .sameName)),
        ([.init("a"), .init("a", .link, target: "b")], .collision(entry: "a", .sameName)),
        ([.init("a"), .init("a/b")], .collision(entry: "a/b", .fileAndDirectory)),
        ([.init("a/b/c"), .init("a/b")], .collision(entry: "a/b", .fileAndDirectory)),
        (
            [.init("l", .link, target: "d"), .init("l/x")],
            .collision(entry: "l/x", .fileAndDirectory)
        ),
        ([.init("a"), .init("a", .directory)], .collision(entry: "a", .fileAndDirectory)),
        (
            [.init("h", .hardLink, target: "a"), .init("a")],
            .notAllowed(
                entry: "h",
                ValueError(
                    expected: "a hard link to a file that the pack brought before",
                    text: "a"
                )
            )
        ),
    ])
    func archivesThatClientsRefuseAreRefused(
        entries: [TarBuilder.Entry],
        error: ArchiveError
    ) throws {
        #expect(throws: error) { try inventory(entries) }
    }

    @Test func hardLinksToHardLinksHaveTheSizeOfTheFile() throws {
        let found = try inventory([
            .init("a", content: [1, 2, 3]), .init("b", .hardLink, target: "a"),
            .init("c", .hardLink, target: "b"), .init("d", .directory), .init("d", .directory),
        ])
        let expected = ArchiveInventory(
            fileCount: 3,
            directoryCount: 1,
            installedSize: ByteCount(9)
        )
        #expect(found == expected)
    }

    /// An archive may repeat a directory, only imply it, and name the root.
    @Test func directoriesAreCountedOnce() throws {
        let found = try inventory([
            .init("./", .directory), .init("a/b/file"), .init("a/", .directory),
            .init("a/", .directory), .init("empty", .directory),
        ])
        #expect(found == ArchiveInventory(fileCount: 1, directoryCount: 3))
    }

    @Test func directoriesBeyondTheLimitOfClientsAreRefused() throws {
        let file = TarBuilder.Entry("file")
        let directories = (0..<4099).map { TarBuilder.Entry("\($0)", .directory) }
        #expect(throws: ArchiveError.tooManyEntries(entry: "4098", limit: 4098)) {
            try inventory([file] + directories)
        }
        #expect(try inventory([file] + directories.dropLast()).fileCount == 1)
    }
}

import Glibc
import StageContainer
import StageModel
import StageSystem
import SystemPackage
import Testing

/// Files that interrupted runs left in `downloads/` and `staging/`.
@Suite(.container) struct RemainsTests {
    let container: Container

    init() throws { container = try Container.make(ContainerTrait.path) }

    private func digest(_ byte: UInt8) -> Digest {
        Digest(bytes: [UInt8](repeating: byte, count: Digest.byteCount))
    }

    /// Stores a manifest of an application that offers a pack with each of the archives.
    private func offer(_ packs: [(id: String, archive: UInt8)], for name: String = "a") throws {
        let application = try ApplicationID("net.example.\(name)")
        let offered = try packs.map { id, archive in
            Pack(
                id: try PackID(id),
                version: 1,
                policy: .onDemand,
                archive: PackArchive(
                    url: "\(id).tar",
                    format: .tar,
                    size: .zero,
                    digest: digest(archive)
                ),
                installedSize: .zero,
                fileCount: 1
            )
        }
        let manifest = Manifest(application: application, revision: 1, packs: offered)
        let record = StoredManifest(
            url: "https://example.org/m",
            resolvedURL: "https://example.org/m",
            entityTag: nil,
            receivedAt: 1,
            text: String(decoding: manifest.json(), as: UTF8.self)
        )
        try container.store(record, for: application)
    }

    /// Counted are the pack's files in an area, and an archive that was being unpacked, which the next run removes first.
    @Test func filesInAnAreaCountAndRecordsBesideThemDoNot() throws {
        let index = PackIndex(
            url: "i/1",
            size: .zero,
            digest: digest(1),
            contentSize: .zero,
            contentDigest: digest(2),
            bundleSize: .zero
        )
        let pack = Pack(
            id: try PackID("levels"),
            version: 1,
            policy: .onDemand,
            archive: nil,
            index: index,
            installedSize: .zero,
            fileCount: 1
        )
        let application = try ApplicationID("net.example.a")
        let manifest = Manifest(application: application, revision: 1, packs: [pack])
        let staging = try #require(try container.root.directory("staging"))
        let area = try staging.makeDirectory(FilePath("levels.\(digest(2))"))
        for name in ["content", "unpacked"] as [FilePath] {
            let tree = try area.makeDirectory(name)
            if name == "content" { try tree.createDirectory("empty") }
            try tree.write([UInt8](repeating: 1, count: 100_000), to: "file", durably: true)
        }
        try area.write([UInt8](repeating: 1, count: 500_000), to: "index", durably: true)
        let contents = try container.reader.unfinishedContent(of: manifest)
        let content = try #require(contents[pack.id])
        #expect((ByteCount(200_000)..<ByteCount(300_000)).contains(content.space))
        #expect(content.fileCount == 2 && content.directoryCount == 1)
    }

    private func leave(_ archives: UInt8...) throws {
        for byte in archives {
            let name = try #require(FilePath.Component("\(digest(byte)).part.1"))
            try container.downloads.leave(name, "x")
        }
    }

    private func leaveArea(_ id: String, _ byte: UInt8) throws {
        let staging = try #require(try container.root.directory("staging"))
        try staging.makeDirectory(FilePath("\(id).\(digest(byte))")).leave("half", "x")
    }

    /// The first byte of each partial download, and of each area's digest.
    private func remains() throws -> (downloads: [Int], areas: [Int]) {
        func bytes(_ names: some Sequence<Substring>) -> [Int] {
            names.compactMap { Int($0.prefix(2), radix: 16) }.sorted()
        }
        let downloads = try container.downloads.entries().map { $0.path.string[...] }
        let areas = try container.root.directory("staging")?.entries() ?? []
        return (
            bytes(downloads),
            bytes(areas.compactMap { $0.path.string.split(separator: ".").last })
        )
    }

    @Test func remainsThatNoManifestOffersAreRemoved() throws {
        try offer([("aurora", 7), ("oceans", 2)])
        try offer([("levels", 3)], for: "b")
        try container.publishAurora(version: 1, "staged")
        try leave(1, 2, 3, 7)
        try leaveArea("oceans", 1)
        #expect(try container.removeRemains(now: 0, keepingOffered: false).leftovers == 1)
        let remains = try remains()
        // Archive 7 belongs to the staged pack.
        #expect(remains.downloads == [2, 3])
        #expect(remains.areas == [])
    }

    /// The start of a run keeps the files from which an interrupted repair can resume.
    @Test func theContentOfAStagedPackStaysForItsRepair() throws {
        try offer([("aurora", 7), ("oceans", 2)])
        try container.publishAurora(version: 1, "staged")
        try leave(7)
        try leaveArea("aurora", 7)
        #expect(try container.removeRemains(now: 0, keepingOffered: true) == Removal())
        #expect(try remains().downloads == [7])
        #expect(try remains().areas == [7])
        #expect(try container.removeRemains(now: 0, keepingOffered: false).leftovers == 1)
        #expect(try remains().downloads == [])
    }

    @Test func aDownloadThatNoManifestNamesGoesBesideAnUnfinishedPackAndSingleFiles() throws {
        try offer([("oceans", 2)])
        try leave(1, 2)
        try leaveArea("oceans", 2)
        _ = try container.makePartialContent(of: digest(2))
        #expect(try container.removeRemains(now: 0, keepingOffered: true).downloads == 1)
        try leave(1)
        let offered = try #require(try container.reader.offeredContent())
        #expect(container.removeLeftovers(now: 0, offering: offered).downloads == 1)
        #expect(try remains().downloads == [2])
        #expect(try remains().areas == [2])
    }

    @Test func theDownloadOfAStagedPackGoesBesideAnUnfinishedPack() throws {
        try offer([("aurora", 7), ("oceans", 2)])
        try container.publishAurora(version: 1, "staged")
        try leave(7)
        try leaveArea("oceans", 2)
        #expect(try container.removeRemains(now: 0, keepingOffered: false).downloads == 1)
        #expect(try remains().downloads == [])
        #expect(try remains().areas == [2])
    }

    @Test func anArchiveStaysWhileAnyPackNeedsIt() throws {
        try offer([("aurora", 7), ("oceans", 7)])
        try container.publishAurora(version: 1, "staged")
        try leave(7)
        #expect(try container.removeRemains(now: 0, keepingOffered: false) == Removal())
        let lock = try container.waitForLock(.aurora)
        #expect(try container.remove(lock).downloads == 0)
        #expect(try remains().downloads == [7])
    }

    @Test func theRemovalOfAPackDeletesItsPartialContent() throws {
        try offer([("aurora", 1), ("oceans", 2)])
        try leave(1, 2)
        try leaveArea("aurora", 1)
        try leaveArea("oceans", 2)
        let lock = try container.waitForLock(.aurora)
        let removal = try container.remove(lock)
        #expect([removal.downloads, removal.leftovers] == [1, 1])
        #expect(try remains().downloads == [2])
        #expect(try remains().areas == [2])
    }

    @Test func aDownloadThatAnotherProcessLocksIsNotRemoved() throws {
        try offer([])
        try leave(1)
        let other = try #require(
            try container.attemptDownloadLock(ContainerLayout.downloadName(of: digest(1)))
        )
        #expect(try container.removeRemains(now: 0, keepingOffered: false) == Removal())
        #expect(try remains().downloads.contains(1))
        other.end()
        #expect(try container.removeRemains(now: 0, keepingOffered: false).downloads == 1)
    }

    /// Temporary files of a process may be in use for an hour, and the folder of an extension for a day.
    @Test func leftoversAreRemovedAtTheAgeAtWhichNoProcessUsesThem() throws {
        let extensions = try container.root.makeDirectory("extension")
        for name in ["run", "removed.run"] as [FilePath] { _ = try extensions.makeDirectory(name) }
        try container.root.leave(".container.json.0123.tmp", "x")
        let made = try #require(try container.root.status(".container.json.0123.tmp")?.modified)
        func leftovers(after age: Int64) -> Int {
            container.removeLeftovers(now: made + age, offering: nil).leftovers
        }
        // The removal of one folder was interrupted.
        #expect(leftovers(after: 3600) == 1)
        #expect(try extensions.entries().map(\.path) == ["run"])
        #expect(leftovers(after: 3601) == 1)
        #expect(try container.root.status(".container.json.0123.tmp") == nil)
        #expect(leftovers(after: 86_399) == 0)
        #expect(leftovers(after: 86_402) == 1)
        #expect(try extensions.entries().isEmpty)
    }

    /// An area is not locked before its creation ends.
    @Test func noAreaIsRemovedWhileOneIsCreated() throws {
        try leaveArea("aurora", 7)
        let locks = try #require(try container.root.directory("locks"))
        let creation = try FileLock.attempt(try locks.file(updating: ".staging"), mode: .shared)
        #expect(container.removeLeftovers(now: 0, offering: OfferedContent()) == Removal())
        #expect(try remains().areas == [7])
        _ = consume creation
        #expect(container.removeLeftovers(now: 0, offering: OfferedContent()).leftovers == 1)
    }

    @Test func withoutAManifestThatCanBeReadDownloadsStay() throws {
        try offer([("oceans", 2)])
        try container.root.directory("manifest")?
            .write([1], to: "net.example.b.json", durably: false)
        try leave(1)
        #expect(try container.removeRemains(now: 0, keepingOffered: false) == Removal())
        #expect(try remains().downloads == [1])
    }
}

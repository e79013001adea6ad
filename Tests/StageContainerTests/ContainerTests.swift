import Foundation
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.container) struct ContainerTests {
    let container: Container

    init() throws {
        container = try Container.make(ContainerTrait.path)
    }

    @Test func aPackIsSeenOnlyAfterItWasPublished() throws {
        let lock = try #require(try container.attemptLock(.aurora))
        let area = try container.makeStagingArea(lock)
        try area.write("sky.svg", "<svg/>")
        #expect(try container.reader.lease(.aurora) == nil)
        #expect(try container.reader.stagedPacks() == [])

        try container.publish(area, as: .aurora(version: 1))

        let lease = try #require(try container.reader.lease(.aurora))
        #expect(try lease.text(of: "sky.svg") == "<svg/>")
        #expect(try container.reader.record(of: .aurora) == .aurora(version: 1))
        #expect(try container.reader.stagedPacks() == [.aurora])
    }

    @Test func aPackThatCannotBePublishedStopsNoOther() throws {
        let oceans = try PackID("oceans")
        var record = StagedPack.aurora(version: 1)
        record.id = oceans
        try container.root.directory("generations")?.leave("oceans", "a file")
        let locks = try [oceans, .aurora].map { try container.waitForLock($0) }
        let areas = try locks.map { try container.makeStagingArea($0) }
        for area in areas { try area.write("sky.svg", "<svg/>") }

        let results = container.publish([(areas[0], record), (areas[1], .aurora(version: 1))])

        #expect(throws: ContainerError.self) { try results[0].get() }
        try results[1].get()
        #expect(try container.reader.stagedPacks() == [.aurora])
        #expect(try container.reader.lease(.aurora)?.text(of: "sky.svg") == "<svg/>")
    }

    /// An immutable directory instead of the link can neither be replaced nor moved away.
    @Test(.root("chattr(1) takes root"))
    func aPackWhoseLinkCannotBeChangedLeavesNoGeneration() throws {
        let packs = try #require(try container.root.directory("packs"))
        let staging = try #require(try container.root.directory("staging"))
        try packs.createDirectory("aurora")
        try changeAttribute("+i", of: packs.path.appending("aurora"))
        defer { try? changeAttribute("-i", of: packs.path.appending("aurora")) }
        for _ in 1...2 {
            let lock = try container.waitForLock(.aurora)
            let area = try container.makeStagingArea(lock)
            try area.write("sky.svg", "<svg/>")
            #expect(throws: ContainerError.self) {
                try container.publish(area, as: .aurora(version: 1))
            }
            #expect(try container.reader.generations(of: .aurora).isEmpty)
            #expect(try staging.entries().count == 1)
            try area.discard()
            #expect(try staging.entries() == [])
            #expect(try packs.entries().map(\.path) == ["aurora"])
        }
    }

    private func changeAttribute(_ change: String, of path: FilePath) throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/chattr")
        process.arguments = [change, path.string]
        try process.run()
        process.waitUntilExit()
        #expect(process.terminationStatus == 0)
    }

    @Test func packsWithEqualContentHaveAreasOfTheirOwn() throws {
        let digest = StagedPack.aurora(version: 1).contentDigest
        let name = String(repeating: "a", count: 127)
        let areas = try ["b", "c"].map { last in
            let lock = try container.waitForLock(try PackID(name + last))
            return try container.makeStagingArea(lock, continuing: digest)
        }
        #expect(areas[0].directory.path != areas[1].directory.path)
        #expect(areas.map(\.isContinued) == [false, false])
    }

    /// A manifest in a format of the application that could be stored, but not read again, is not accepted, either.
    @Test(
        arguments: [
            (1024, nil), (1025, "expected at most 1024 combining characters in a row, found more"),
        ] as [(Int, String?)]
    )
    func aManifestInAnotherFormatIsReadAsItWasStored(count: Int, fault: String?) throws {
        let application = ApplicationID(unchecked: "net.example")
        let manifest = StoredManifest(
            url: "https://example.net/manifest",
            resolvedURL: "https://example.net/manifest",
            entityTag: nil,
            receivedAt: 1,
            text: "a" + String(repeating: "\u{301}", count: count),
            customFormatApplication: application
        )
        if let fault {
            #expect(throws: ManifestError.notJSON(fault)) { try manifest.manifest() }
        } else {
            #expect(try manifest.manifest().application == application)
            try container.store(manifest, for: application)
            #expect(try container.reader.storedManifest(for: application) == manifest)
        }
    }

    @Test func aManifestIsNotStoredInPlaceOfANewerOne() throws {
        let application = try ApplicationID("net.example")
        func manifest(_ text: String) -> StoredManifest {
            StoredManifest(url: "", resolvedURL: "", entityTag: nil, receivedAt: 1, text: text)
        }
        let newer = manifest("43")
        #expect(try container.store(newer, for: application) { _ in true } == nil)
        #expect(try container.store(manifest("42"), for: application) { $0 == newer } == newer)
        #expect(try container.storedManifest(for: application) == newer)
        #expect(try container.store(manifest("44"), for: application) { _ in false } == nil)
        #expect(try container.storedManifest(for: application) == manifest("44"))
    }

    @Test func aLeasedGenerationSurvivesUpdateAndRemoval() throws {
        try container.publishAurora(version: 1, "old")
        let lease = try #require(try container.reader.lease(.aurora))
        try container.publishAurora(version: 2, "new")
        let lock = try #require(try container.attemptLock(.aurora))

        var removal = try container.removeObsoleteGenerations(lock, keeping: 0)
        #expect(removal.generations == 0)
        #expect(removal.inUse == 1)
        #expect(try lease.text(of: "sky.svg") == "old")
        #expect(try container.reader.lease(.aurora)?.text(of: "sky.svg") == "new")

        removal = try container.remove(lock)
        #expect(removal.generations == 1)
        #expect(removal.inUse == 1)
        #expect(try lease.text(of: "sky.svg") == "old")
        #expect(try container.reader.lease(.aurora) == nil)
    }

    @Test(arguments: ["files", "pins"])
    func aRemovalContinuesAfterAnErrorAndReportsIt(_ name: FilePath.Component) throws {
        try container.publishAurora(version: 1, "old")
        try container.publishAurora(version: 2, "new")
        // A file in place of a directory cannot be listed.
        try container.root.leave(name, "")
        let lock = try #require(try container.attemptLock(.aurora))
        let removal = try container.remove(lock, includingPinned: true)
        #expect(removal.generations == 2)
        #expect(removal.failure != nil)
        #expect(try container.reader.generations(of: .aurora).isEmpty)
    }

    @Test func obsoleteGenerationsGoOldestFirst() throws {
        for version in 1...4 { try container.publishAurora(version: version, "\(version)") }
        let lock = try #require(try container.attemptLock(.aurora))
        let removal = try container.removeObsoleteGenerations(lock, keeping: 1)
        #expect(removal.generations == 2)
        let left = try container.reader.generations(of: .aurora).map { $0.description.prefix(2) }
        #expect(left == ["3-", "4-"])
    }

    @Test func theTemporaryFileOfARecordIsRemovedWithItsDownload() throws {
        let downloads = ContainerTrait.path.appending("downloads")
        let name: FilePath.Component = ".0123abcd.state.9f8e7d6c.tmp"
        try Directory.open(downloads).write([1], to: name, durably: false)
        let removal = container.removeLeftovers(now: 0, offering: OfferedContent())
        #expect(removal.downloads == 1)
        #expect(try Directory.open(downloads).entries().isEmpty)
    }

    @Test func theSameVersionIsPublishedAgainBesideTheDamagedOne() throws {
        try container.publishAurora(version: 1, "damaged")
        let lease = try #require(try container.reader.lease(.aurora))
        try container.publishAurora(version: 1, "whole")
        #expect(try container.reader.lease(.aurora)?.text(of: "sky.svg") == "whole")
        #expect(try lease.text(of: "sky.svg") == "damaged")
    }

    @Test func onePackHasOneOwner() throws {
        let lock = try #require(try container.attemptLock(.aurora))
        #expect(try container.attemptLock(.aurora) == nil)
        let other = try PackID("oceans")
        #expect(try container.attemptLock(other) != nil)
        _ = lock.id
    }

    @Test func areasInUseAndOfferedDownloadsAreNotLeftovers() throws {
        let lock = try #require(try container.attemptLock(.aurora))
        let living = try container.makeStagingArea(lock)
        try living.write("sky.svg", "half")
        let staging = ContainerTrait.path.appending("staging")
        try Directory.make(staging.appending("dead/content/deep")).leave("file", "x")
        try Directory.open(staging).leave("stray", "x")
        try container.downloads.leave("wanted.part", "x")
        try container.downloads.leave("orphan.part", "x")

        var offered = OfferedContent()
        (offered.all, offered.missing) = (["wanted"], ["wanted"])
        let removal = container.removeLeftovers(now: 0, offering: offered)

        #expect(removal.leftovers == 2)
        #expect(removal.downloads == 1)
        #expect(try Directory.open(staging).entries().count == 1)
        #expect(try container.downloads.entries().map(\.name) == ["wanted.part"])
        try container.publish(living, as: .aurora(version: 1))
        #expect(try container.reader.lease(.aurora)?.text(of: "sky.svg") == "half")
    }

    @Test func aContainerOfALaterFormatIsRefused() throws {
        try container.root.remove("container.json")
        try container.root.leave("container.json", #"{"formatVersion":2}"#)
        let path = ContainerTrait.path
        let expected = ContainerError.unknownFormat(path, found: 2, known: 1)
        #expect(throws: expected) { try ContainerReader.open(path) }
        #expect(throws: expected) { try Container.make(path) }
    }

    /// The record is written last, and restored if it is lost.
    @Test(arguments: [
        "packs", "generations", "staging", "files", "downloads", "locks", "manifest", "history",
        "pins",
        "trust", "extension", "shared", "lost+found",
    ])
    func aContainerWithoutItsRecordIsCompleted(directory: FilePath.Component) throws {
        let path = ContainerTrait.path.appending("other")
        _ = try Directory.make(path.appending(directory))
        _ = try Container.make(path)
        #expect(try ContainerReader.open(path) != nil)
    }

    @Test func aDirectoryWithOtherFilesIsRefused() throws {
        let path = ContainerTrait.path.appending("other")
        _ = try Directory.make(path.appending("photos"))
        #expect(throws: ContainerError.notAContainer(path, found: "photos")) {
            try Container.make(path)
        }
    }

    @Test func aDirectoryThatIsNoContainerReadsAsNone() throws {
        #expect(try ContainerReader.open(ContainerTrait.path.appending("none")) == nil)
        _ = try Directory.make(ContainerTrait.path.appending("empty"))
        #expect(try ContainerReader.open(ContainerTrait.path.appending("empty")) == nil)
    }

    @Test func readersAndPublishersMeetOnlyWholeGenerations() async throws {
        try container.publishAurora(version: 1, "1")
        let container = container
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                for version in 2...60 {
                    try container.publishAurora(version: version, "\(version)")
                    let lock = try container.waitForLock(.aurora)
                    _ = try container.removeObsoleteGenerations(lock, keeping: 0)
                }
            }
            for _ in 0..<2 {
                group.addTask {
                    var last = 0
                    while last < 60 {
                        let lease = try #require(try container.reader.lease(.aurora))
                        let version = try #require(Int(try lease.text(of: "sky.svg")))
                        #expect(version >= last)
                        last = version
                        await Task.yield()
                    }
                }
            }
            try await group.waitForAll()
        }
    }
}

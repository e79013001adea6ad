import FoundationEssentials
import StageContainer
import StageDigest
import StageEngine
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Indexed packs that have an archive of the same files.
@Suite(.directory, .server)
struct ArchiveBesideIndexTests {
    private let world: IndexedWorld

    init() throws { world = try IndexedWorld() }

    /// A tree whose archive is much smaller than its frames: its files differ only in a byte every few
    /// kilobytes.
    private static func tree(_ version: UInt8 = 1) -> [String: [UInt8]] {
        let large = noise(400_000)
        var tree: [String: [UInt8]] = ["run.sh": [1, 2, version], "empty": [], "caf\u{E9}/a": [1]]
        for number in 0..<10 as Range<UInt8> {
            var bytes = large
            for offset in stride(from: 0, to: bytes.count, by: 4096) {
                bytes[offset] = number &* 7 &+ version
            }
            tree["large/\(number)"] = bytes
        }
        return tree
    }

    private struct Failure: Error { var text: String }

    @discardableResult
    private func stage(
        _ report: @escaping @Sendable (StagingEvent) -> Void = { _ in }
    ) async throws -> StagingFigures {
        let outcome = try await world.stage(report: report)
        guard case .staged(let figures) = outcome else { throw Failure(text: "\(outcome)") }
        return figures
    }

    /// Compares the staged files, and checks that no temporary files remain.
    private func expectStaged(_ tree: [String: [UInt8]]) throws {
        #expect(try world.staged() == tree)
        #expect(try Directory.open(world.path(of: "")).status("run.sh")?.mode == 0o755)
        let container = try #require(try Container.open(world.root.path.appending("container")))
        #expect(try container.differences(in: try PackID("levels")) == [])
        #expect(try container.reader.faults() == [])
        #expect(try container.root.directory("staging")?.entries() == [])
        let left = try #require(try container.root.directory("downloads")).entries()
        #expect(left.filter { !$0.path.string.hasSuffix(".lock") } == [])
    }

    /// Makes the server offer an archive with other content instead of the publisher's.
    private func offer(_ archive: [UInt8], window: ByteCount? = nil) throws {
        var pack = try #require(world.pack)
        let digest = Digest(of: archive)
        pack.archive = PackArchive(
            url: "a/\(digest)",
            format: .tarZstandard,
            size: ByteCount(archive.count),
            digest: digest,
            windowSize: window
        )
        try world.serve(offering: pack)
        world.server.answer("/a/\(digest)", with: .content(archive))
    }

    private func tar(_ files: [String: [UInt8]], _ more: TarBuilder.Entry...) throws -> [UInt8] {
        var tar = TarBuilder()
        for (path, bytes) in files.sorted(by: { $0.key < $1.key }) {
            tar.add(TarBuilder.Entry(path, content: bytes))
        }
        for entry in more { tar.add(entry) }
        tar.finish()
        return try ArchiveFormat.tarZstandard.compress(tar.bytes)
    }

    @Test func aFirstInstallationTakesTheArchiveWhereThatIsLess() async throws {
        let tree = Self.tree()
        try await world.publish(
            tree,
            links: ["link": "large/1"],
            directories: ["nothing/here"],
            archive: true
        )
        let figures = try await stage()
        let pack = try #require(world.pack)
        let size = try #require(pack.archive?.size)
        #expect(size + size + size < pack.index?.bundleSize ?? .zero)
        #expect(world.archiveRequests == 1 && world.bundleRequests == 0)
        #expect(figures.transferred == pack.downloadSize)
        #expect(figures.reused == .zero)
        #expect(figures.source == world.server.url("/\(pack.archive?.url ?? "")"))
        var expected = tree
        expected["link → large/1"] = []
        expected["nothing/here/"] = []
        try expectStaged(expected)
    }

    /// The plan has all of the disk for another pack, which is staged in the same run.
    @Test func anArchiveLeavesTheSpaceOfTheOtherPacksOfTheRun() async throws {
        try await world.publish(Self.tree(), archive: true)
        let (first, second) = (try PackID("levels"), try PackID("other"))
        try world.serve(as: [first, second])
        world.plannedSpace = [second: ByteCount(1 << 60)]
        let chosen = try await chosenWays(of: [first, second])
        #expect(chosen == [first: .objects, second: .archive])
    }

    /// The plan has all of the disk for the first pack, which ends before the second one chooses.
    @Test func anArchiveTakesTheSpaceThatAnEndedPackDidNotUse() async throws {
        try await world.publish(Self.tree(), archive: true)
        let (first, second) = (try PackID("levels"), try PackID("other"))
        try world.serve(as: [first, second])
        world.plannedSpace = [first: ByteCount(1 << 60)]
        let chosen = try await chosenWays(of: [first, second])
        #expect(chosen == [first: .archive, second: .archive])
    }

    /// Stages packs, and returns the last choice of each.
    private func chosenWays(of ids: [PackID]) async throws -> [PackID: TransferChoice.Way] {
        let ways = Mutex<[PackID: TransferChoice.Way]>([:])
        let outcomes = try await world.stage(ids) { id, event in
            if case .chose(let choice) = event { ways.withLock { $0[id] = choice.way } }
        }
        #expect(outcomes.count == ids.count)
        return ways.withLock(\.self)
    }

    /// With space for one archive beside the content of both packs, the first pack of the plan gets it.
    @Test func aPlanGivesTheSpaceForAnArchiveOnce() async throws {
        try await world.publish(Self.tree(), archive: true)
        let (first, second) = (try PackID("levels"), try PackID("other"))
        try world.serve(as: [first, second])
        let pack = try #require(world.pack)
        let archive = try #require(pack.archive?.size)
        let manifest = Manifest(
            application: try ApplicationID("net.example.game"),
            revision: 1,
            packs: [pack]
        )
        let content = Planner(manifest: manifest).space(for: pack)
        let needed = Planner.reserve + content + content
        // The directories of an unpacked archive, and the difference of its index, are less than half of it.
        let one = needed + ByteCount(archive.rawValue * 3 / 2)
        let ways = try await world.estimate([first, second], freeSpace: one)
        #expect(ways == [first: .archive, second: .objects])
        let both = needed + ByteCount(archive.rawValue * 3)
        let more = try await world.estimate([first, second], freeSpace: both)
        #expect(more == [first: .archive, second: .archive])
    }

    /// The directories exist twice until the files of the archive have been moved.
    @Test func anArchiveIsTakenOnlyWithInodesForItsOwnDirectories() async throws {
        try await world.publish(Self.tree(), directories: ["nothing/here"], archive: true)
        let pack = try #require(world.pack)
        let directories = try #require(pack.directoryCount)
        #expect(directories == 4)
        let content = pack.fileCount + 2 * directories
        let needed = content + Planner.inodesOfRecords + AvailableSpace.reservedInodes
        let space = ByteCount.mebibytes(1000)
        #expect(try await world.estimate(freeSpace: space, freeInodes: needed) == .archive)
        #expect(try await world.estimate(freeSpace: space, freeInodes: needed - 1) == .objects)
    }

    /// The delta of the index, which is transferred with the archive, is kept in memory.
    @Test func anArchiveIsTakenOnlyWithSpaceForItself() async throws {
        try await world.publish(Self.tree(), archive: true)
        let pack = try #require(world.pack)
        let archive = try #require(pack.archive?.size)
        #expect(pack.index?.fileTableDelta != nil)
        let files = StoredGeneration.size(pack.installedSize, fileCount: pack.fileCount)
        let directories = try #require(pack.directoryCount)
        let content = files + ByteCount(2 * directories * 4096)
        let needed = content + archive + Planner.reserve
        let enough = try await world.estimate(freeSpace: needed)
        let tooLittle = try await world.estimate(freeSpace: needed - ByteCount(1))
        #expect(enough == .archive && tooLittle == .objects)
    }

    @Test func theNextUpdateFetchesWhatChanged() async throws {
        var tree = Self.tree()
        try await world.publish(tree, archive: true)
        try await stage()
        tree["large/3"]?[5] ^= 1
        tree["new"] = noise(1000, seed: 9)
        try await world.publish(tree, archive: true)
        #expect(world.archives.count == 2)
        let figures = try await stage()
        try expectStaged(tree)
        #expect(world.archiveRequests == 1)
        #expect(figures.transferred < ByteCount(10_000))
    }

    @Test func anUpdateCostsNoMoreThanTheArchive() async throws {
        try await world.publish(Self.tree(1), archive: true)
        try await stage()
        let tree = Self.tree(2)
        try await world.publish(tree, deltas: false, archive: true)
        let before = world.bundleRequests
        let figures = try await stage()
        try expectStaged(tree)
        let pack = try #require(world.pack)
        let index = try #require(pack.index?.deltas.first?.size ?? pack.index?.size)
        #expect(figures.transferred == index + (pack.archive?.size ?? .zero))
        #expect(world.bundleRequests == before)
    }

    @Test func differencesAreTakenWhereTheyAreLessThanTheArchive() async throws {
        try await world.publish(Self.tree(1), archive: true)
        try await stage()
        let tree = Self.tree(2)
        try await world.publish(tree, archive: true)
        let pack = try #require(world.pack)
        let set = try #require(pack.index?.deltas.first?.frames)
        #expect(set.size < pack.archive?.size ?? .zero)
        #expect(set.size < pack.index?.bundleSize ?? .zero)
        let requests = world.archiveRequests
        guard let planned = try await world.plannedTransfer() else {
            throw Failure(text: "planned no transfer")
        }
        let choices = Mutex<[TransferChoice]>([])
        let figures = try await stage { event in
            if case .chose(let choice) = event { choices.withLock { $0.append(choice) } }
        }
        try expectStaged(tree)
        #expect(world.archiveRequests == requests)
        // The table of the set, which was received for the choice, is in neither way.
        #expect(choices.withLock { $0 } == [planned.choice])
        #expect(figures.transferred == planned.size)
        #expect(figures.transferred < pack.archive?.size ?? .zero)
    }

    /// Small differences in many frames: their table is too large beside a small archive to be requested.
    @Test(
        arguments: [(5000, 14, .archive), (60_000, 2, .objects)]
            as [(Int, Int, TransferChoice.Way)]
    )
    func anUpdateTransfersWhatThePublisherHasCounted(
        length: Int,
        count: Int,
        way: TransferChoice.Way
    ) async throws {
        let part = noise(length)
        func tree(_ version: UInt8) -> [String: [UInt8]] {
            var files: [String: [UInt8]] = [:]
            for number in 0..<24 as Range<UInt8> {
                var bytes = (0..<count).flatMap { _ in part }
                (bytes[1000], bytes[2000]) = (number, version)
                files["\(number)"] = bytes
            }
            return files
        }
        try await world.publish(tree(1), archive: true)
        try await stage()
        let version = try await world.publish(tree(2), archive: true)
        let counted = try #require(version.updates.first?.cost)
        let planned = try await world.plannedTransfer()
        #expect(planned?.choice.way == way && planned?.size == counted.total)
        let figures = try await stage()
        #expect(figures.transferred == counted.total)
        #expect(try world.staged() == tree(2))
    }

    @Test func frameByFrameIsTakenWhereThatIsLess() async throws {
        try await world.publish(["run.sh": noise(200_000), "b": noise(200_000, seed: 2)])
        // A larger archive of other content.
        try offer(noise(500_000, seed: 3))
        try await stage()
        #expect(world.archiveRequests == 0 && world.bundleRequests > 0)
    }

    /// A defective archive costs transferred bytes, and never fails the installation.
    @Test(arguments: [
        Answer.status(404), .status(403), .status(410), .content([1, 2, 3]),
        .content(noise(10_000)),
    ])
    func anArchiveThatIsNotThereIsMadeUpForByObjects(answer: Answer) async throws {
        let tree = Self.tree()
        try await world.publish(tree, archive: true)
        for path in world.archives { world.server.answer(path, with: answer) }
        try await stage()
        try expectStaged(tree)
        #expect(world.bundleRequests > 0)
    }

    @Test func bytesThatAreNotThePublishersAreNotUnpacked() async throws {
        let tree = Self.tree()
        try await world.publish(tree, archive: true)
        let path = try #require(world.archives.first)
        var content = try bytes(of: world.store.path.appending(String(path.dropFirst())))
        content[content.count / 2] ^= 1
        world.server.answer(path, with: .content(content))
        let ways = Mutex<[TransferChoice.Way]>([])
        let unpacked = Mutex<Set<TransferChoice.Way>>([])
        try await stage { event in
            if case .chose(let choice) = event { ways.withLock { $0.append(choice.way) } }
            if case .unpacked = event, let way = ways.withLock(\.last) {
                unpacked.withLock { _ = $0.insert(way) }
            }
        }
        #expect(ways.withLock { $0 } == [.archive, .objects])
        #expect(unpacked.withLock { $0 } == [.objects])
        try expectStaged(tree)
    }

    /// Archives with the digest in the manifest, but without the files of the index.
    enum Bent: CaseIterable {
        case otherContent, otherSize, missingFile, moreFiles, linkForFile, wayOut, cutShort,
            noArchive
    }

    @Test(arguments: Bent.allCases)
    func filesThatAnArchiveLacksComeFromObjects(bent: Bent) async throws {
        let tree = Self.tree()
        try await world.publish(tree, archive: true)
        var files = tree
        let archive: [UInt8]
        switch bent {
        case .otherContent:
            files["large/7"]?[100] ^= 1
            archive = try tar(files)
        case .otherSize:
            files["large/7"]?.removeLast()
            archive = try tar(files)
        case .missingFile:
            files["large/7"] = nil
            archive = try tar(files)
        case .moreFiles:
            archive = try tar(files, TarBuilder.Entry("zz/planted", content: [1]))
        case .linkForFile:
            files["large/7"] = nil
            archive = try tar(files, TarBuilder.Entry("large/7", .link, target: "6"))
        case .wayOut:
            archive = try tar(files, TarBuilder.Entry("../../../planted", content: [1]))
        case .cutShort:
            archive = Array(try tar(files).dropLast(20_000))
        case .noArchive:
            archive = noise(1000)
        }
        try offer(archive)
        try await stage()
        try expectStaged(tree)
        #expect(world.server.counts(for: "/a/\(Digest(of: archive))").requests == 1)
        #expect(world.bundleRequests > 0)
        #expect(!FileStatus.exists(world.root.path.appending("container/planted")))
    }

    /// Zstandard frames that require 256 MiB, more than a decoder is granted, or more than declared.
    @Test(arguments: [(144, nil), (80, ByteCount(1 << 19))] as [(UInt8, ByteCount?)])
    func anArchiveThatTakesTooMuchMemoryIsNotDecoded(
        descriptor: UInt8,
        window: ByteCount?
    ) async throws {
        let tree = Self.tree()
        try await world.publish(tree, archive: true)
        var archive: [UInt8] = [0x28, 0xB5, 0x2F, 0xFD, 0, descriptor]
        var plain = TarBuilder()
        for (path, bytes) in tree where path < "large/5" {
            plain.add(TarBuilder.Entry(path, content: bytes))
        }
        plain.finish()
        // Uncompressed blocks, and the flag of the last one.
        for start in stride(from: 0, to: plain.bytes.count, by: 100_000) {
            let block = plain.bytes[start...].prefix(100_000)
            let header = UInt32(block.count) << 3 | (block.endIndex == plain.bytes.count ? 1 : 0)
            archive += [UInt8(header & 0xFF), UInt8(header >> 8 & 0xFF), UInt8(header >> 16)]
            archive += block
        }
        try offer(archive, window: window)
        try await stage()
        try expectStaged(tree)
        // All files are downloaded, although the archive contains half of them.
        #expect(world.bundleBytes > 3_900_000)
    }

    @Test func anArchiveThatBreaksOffIsContinued() async throws {
        let tree = Self.tree()
        try await world.publish(tree, archive: true)
        let path = try #require(world.archives.first)
        let content = try bytes(of: world.store.path.appending(String(path.dropFirst())))
        let half = content.count / 2
        // The connection breaks, and so does every one after it.
        let broken = [Answer](repeating: .dropped, count: 40)
        world.server.answer(path, with: [.content(content).cut(after: half)] + broken)
        guard case .failed(.transfer) = try await world.stage() else {
            throw Failure(text: "staged from a server that does not answer")
        }
        #expect(world.bundleRequests == 0)
        try world.serve()
        let figures = try await stage()
        try expectStaged(tree)
        #expect(world.archiveBytes == content.count && world.bundleRequests == 0)
        #expect(figures.reused == ByteCount(half))
    }

    /// After a run that ends once the archive is downloaded, the next run downloads nothing again.
    @Test func filesOfARunThatDiedWhileUnpackingAreUsed() async throws {
        let tree = Self.tree()
        try await world.publish(tree, archive: true)
        // A file at the path of the generation makes the publication fail.
        let container = try Container.make(world.root.path.appending("container")).root
        let generations = try #require(try container.directory("generations"))
        try generations.write([], to: "levels", durably: false)
        guard case .failed(.container) = try await world.stage() else {
            throw Failure(text: "published below a file")
        }
        try generations.removeTree("levels")
        // Such a run leaves beside the content half of the unpacked files, and incomplete files.
        let staging = try #require(try container.directory("staging"))
        let name = try #require(try staging.entries().first?.name)
        let area = try #require(try staging.directory(FilePath(name)))
        let scratch = try area.makeDirectory("unpacked", exactly: .ownerReadWriteExecute)
        try scratch.write([1], to: "planted", durably: false)
        let content = try #require(try area.directory("content"))
        for file in ["large/4", "large/5"] {
            try overwrite(content.path.pushing(FilePath(file)), [0, 0, 0], at: 5000)
        }
        let before = world.archiveRequests
        try await stage()
        try expectStaged(tree)
        #expect(world.archiveRequests == before && world.bundleRequests == 0)
    }

    @Test func aServerWithoutRangesServesTheArchiveInsteadOfLargerBundles() async throws {
        var tree = Self.tree()
        try await world.publish(tree, archive: true)
        try await stage()
        // The missing file is in a bundle that mostly contains obsolete content.
        var other = Self.tree(9)
        other["new"] = noise(20_000, seed: 5)
        try await world.publish(other, deltas: false, archive: true)
        tree["new"] = other["new"]
        // If the publisher's store lacks the bundle, the publisher does not repack it.
        let bundles = try world.store.makeDirectory("b")
        let names = world.previous.bundles.map { FilePath.Component(stringLiteral: "\($0.digest)") }
        for name in names {
            try bundles.rename(name, to: .init(stringLiteral: "away-\(name)"), in: bundles)
        }
        try await world.publish(tree, deltas: false, archive: true)
        for name in names {
            try bundles.rename(.init(stringLiteral: "away-\(name)"), to: name, in: bundles)
        }
        try world.serve { $0.ignoringRanges() }
        let archives = world.archiveRequests
        let events = Mutex<[TransferChoice]>([])
        try await stage { event in
            if case .chose(let choice) = event { events.withLock { $0.append(choice) } }
        }
        try expectStaged(tree)
        #expect(world.archiveRequests == archives + 1)
        #expect(events.withLock { $0.map(\.way) } == [.objects, .archive])
    }

    @Test func progressOnlyRisesAndEndsAtAll() async throws {
        let tree = Self.tree()
        try await world.publish(tree, archive: true)
        let pack = try #require(world.pack)
        let application = try ApplicationID("net.example.game")
        let plan = Planner(
            manifest: Manifest(application: application, revision: 1, packs: [pack])
        ).plan(for: .packs([pack.id]))
        let progress = Mutex(StagingProgress(plan))
        let seen = Mutex<[Double]>([])
        try await stage { event in
            let fraction = progress.withLock { progress in
                progress.apply(event, to: pack.id)
                return progress.fractionCompleted
            }
            seen.withLock { $0.append(fraction) }
        }
        let fractions = seen.withLock { $0 }
        #expect(fractions == fractions.sorted() && (fractions.last ?? 2) <= 1)
        #expect(progress.withLock { $0.downloadSize } == pack.downloadSize)
    }

    @Test func aPlanNamesTheWayOfTheFewestBytes() async throws {
        try await world.publish(Self.tree(1), archive: true)
        let first = try #require(world.pack)
        let archive = try #require(first.archive)
        let bundles = try #require(first.index?.bundleSize)
        let application = try ApplicationID("net.example.game")
        var planner = Planner(
            manifest: Manifest(application: application, revision: 1, packs: [first])
        )
        func entry() -> Plan.Entry? { planner.plan(for: .packs([first.id])).entries.first }
        func choice() -> TransferChoice? { entry()?.transfer }
        let index = try #require(first.index)
        let delta = try #require(index.fileTableDelta?.size)
        let all = archive.size + delta
        var expected = TransferChoice(objects: bundles + index.size, archive: all)
        expected.includesIndex = true
        #expect(choice() == expected)
        #expect(choice()?.way == .archive && choice()?.byteCount == first.downloadSize)
        // The index counts once.
        #expect(entry()?.transferSize == first.downloadSize)
        planner.downloaded = [archive.digest: ByteCount(100)]
        #expect(choice()?.archive == all - ByteCount(100))
        // The archive of an update is known only with the index.
        try await world.publish(Self.tree(2), archive: true)
        let second = try #require(world.pack)
        planner.manifest.packs = [second]
        planner.staged = [
            first.id: .init(version: 1, contentDigest: first.contentDigest)
        ]
        #expect(choice()?.dependsOnIndex == true)
        #expect(choice()?.differences == second.index?.deltas.first?.frames?.size)
    }
}

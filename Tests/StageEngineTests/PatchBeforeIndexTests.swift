import StageContainer
import StageDigest
import StageEngine
import StageFrame
import StageIndex
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Updates that restore the index from the content of a patch.
@Suite(.directory, .server)
struct PatchBeforeIndexTests {
    private let world: IndexedWorld
    private let old = Self.trees.old
    private let new = Self.trees.new

    init() throws { world = try IndexedWorld() }

    /// Two trees with many small files that all change, so that digests are most of what an index delta has, with a file of one
    /// frame and one of several, with equal files, and with files that stay.
    private static let trees = {
        var old = ["large": noise(400_000), "same": noise(100_000, seed: 2), "run.sh": [1, 2]]
        old["one"] = noise(70_000, seed: 3)
        for number in 0..<400 {
            old["small/\(number)"] = noise(600, seed: UInt64(number + 10))
            old["kept/\(number)"] = noise(40, seed: UInt64(number + 1000))
        }
        var new = old
        new["large"]?[200_000] ^= 1
        new["one"]?[500] ^= 1
        new["run.sh"] = [1, 2, 3]
        for number in 0..<400 { new["small/\(number)"]?[300] ^= 1 }
        new["copy/3"] = new["small/3"]
        new["empty"] = []
        return (old: old, new: new)
    }()

    /// The trees with near-copies in the newer one, which a patch stores once: more content than a part of 1 MiB has.
    private static let largeTrees = {
        let old = trees.old
        var new = trees.new
        for (name, content) in nearCopies(of: noise(100_000, seed: 40), count: 12) {
            new["twins/\(name)"] = content
        }
        return (old: old, new: new)
    }()

    private struct Failure: Error {}

    /// The published patch, and the delta of the index that needs its content.
    private struct Published {
        var delta: PackIndex.Delta
        var patch: PackIndex.Patch
        var indexDelta: PackIndex.CompanionDelta
        /// The requests for bundles of the first installation.
        var bundleRequests: Int
    }

    /// Publishes the old tree, stages it, and publishes the new one; the large trees if the patch is to have several parts.
    private func publishBoth(
        archive: Bool = false,
        inParts: Bool = false
    ) async throws -> Published {
        let trees = inParts ? Self.largeTrees : (old: old, new: new)
        try await world.publish(trees.old, archive: archive)
        guard case .staged = try await world.stage() else { throw Failure() }
        let size: ByteCount? = inParts ? .mebibytes(1) : nil
        try await world.publish(trees.new, patches: true, partSize: size, archive: archive)
        let delta = try #require(world.pack?.index?.deltas.first)
        let patch = try #require(delta.patch)
        return Published(
            delta: delta,
            patch: patch,
            indexDelta: try #require(patch.indexDelta),
            bundleRequests: world.bundleRequests
        )
    }

    /// Offers another delta of the index for the patch.
    private func offer(indexDelta bytes: [UInt8]) throws {
        var pack = try #require(world.pack)
        pack.index?.deltas[0].patch?.indexDelta = PackIndex.CompanionDelta(
            url: "i/other",
            size: ByteCount(bytes.count),
            digest: Digest(of: bytes)
        )
        try world.serve(offering: pack)
        world.server.answer("/i/other", with: .content(bytes))
    }

    private func compressed(_ bytes: [UInt8]) -> [UInt8] {
        var compressor = FrameCompressor(level: 3)
        return compressor.compress(bytes.span)
    }

    private func requests(_ url: String) -> Int { world.server.counts(for: "/" + url).requests }

    /// Stages the new tree.
    @discardableResult
    private func update(inParts: Bool = false) async throws -> StagingFigures {
        guard case .staged(let figures) = try await world.stage() else { throw Failure() }
        #expect(try world.staged() == (inParts ? Self.largeTrees.new : new))
        let container = try #require(try Container.open(world.root.path.appending("container")))
        #expect(try container.differences(in: try PackID("levels")) == [])
        #expect(try container.reader.downloadedSizes().isEmpty)
        #expect(try container.root.directory("staging")?.entries() == [])
        return figures
    }

    /// The number of frames in the patch.
    private func partCount(of patch: PackIndex.Patch) throws -> Int {
        try PatchTable.read(from: world.object("/" + patch.url)).frames.count
    }

    @Test(arguments: [false, true])
    func anUpdateDownloadsNoDigestsOfThePatch(inParts: Bool) async throws {
        let published = try await publishBoth(inParts: inParts)
        #expect(try (partCount(of: published.patch) > 1) == inParts)
        let saved = published.delta.size.rawValue - published.indexDelta.size.rawValue
        // The digests of 400 small files.
        #expect(saved > 400 * 32)
        let figures = try await update(inParts: inParts)
        #expect(figures.transferred == published.patch.size + published.indexDelta.size)
        #expect(figures.reused > .zero)
        #expect(requests(published.delta.url) == 0)
        #expect(requests(try #require(world.pack?.index?.url)) == 0)
        #expect(
            requests(published.patch.url) == 1 && world.bundleRequests == published.bundleRequests
        )
        #expect(try Directory.open(world.path(of: "")).status("run.sh")?.mode == 0o755)
    }

    /// Neither object waits for the other: the server sends the delta only once the patch was requested.
    @Test func deltaAndPatchAreRequestedAtOnce() async throws {
        let published = try await publishBoth()
        let gate = Gate()
        let delta = Answer.content(try world.object("/" + published.indexDelta.url))
        world.server.answer("/" + published.indexDelta.url, with: delta.held(after: 0, until: gate))
        let (server, patch) = (world.server, published.patch.url)
        async let opening: Void = server.open(gate, afterRequestFor: patch)
        let figures = try await update()
        try await opening
        #expect(figures.transferred == published.patch.size + published.indexDelta.size)
    }

    /// The way is reported once, and the bytes that arrive are never more than were announced.
    @Test func theWayIsReportedOnce() async throws {
        let published = try await publishBoth()
        let pack = try #require(world.pack)
        let manifest = Manifest(
            application: try ApplicationID("net.example.game"),
            revision: 1,
            packs: [pack]
        )
        let plan = Planner(manifest: manifest).plan(for: .packs([pack.id]))
        let progress = Mutex(StagingProgress(plan))
        let ways = Mutex<[TransferChoice.Way]>([])
        let excess = Mutex(0)
        let outcome = try await world.stage { event in
            if case .chose(let choice) = event { ways.withLock { $0.append(choice.way) } }
            progress.withLock { progress in
                progress.apply(event, to: pack.id)
                if progress.received > progress.downloadSize { excess.withLock { $0 += 1 } }
            }
        }
        guard case .staged = outcome else { throw Failure() }
        let (reported, tooMany) = (ways.withLock { $0 }, excess.withLock { $0 })
        #expect(reported == [.patch] && tooMany == 0)
        // The index is not a part of the download.
        let size = progress.withLock { $0.downloadSize }
        #expect(size == published.patch.size + published.indexDelta.size)
    }

    /// The restored index is the base of the next update.
    @Test func theNextUpdateGoesByTheRestoredIndex() async throws {
        _ = try await publishBoth()
        try await update()
        var next = new
        next["small/7"] = [9]
        try await world.publish(next)
        guard case .staged(let figures) = try await world.stage() else { throw Failure() }
        #expect(try world.staged() == next)
        #expect(figures.transferred < ByteCount(2000))
    }

    /// The plan fetches nothing, and a run transfers what it says.
    @Test func thePlanHasTheBytesOfTheRun() async throws {
        let published = try await publishBoth()
        let container = try #require(try Container.open(world.root.path.appending("container")))
        let planned = try await world.plannedTransfer()
        #expect(planned?.choice.precedesIndex == true && planned?.choice.way == .patch)
        #expect(requests(published.delta.url) + requests(published.indexDelta.url) == 0)
        #expect(try container.reader.downloadedSizes().isEmpty)
        #expect(try await update().transferred == planned?.size)
    }

    /// A delta that cannot be used costs the bytes of the other one; the patch is downloaded once.
    @Test(arguments: [
        Answer.status(404), .status(403), .status(503), .content([1, 2, 3]), .content(noise(900)),
        .dropped, .redirect(to: "http://127.0.0.1:1/a"),
    ])
    func withoutTheDeltaTheOtherOneIsDownloaded(answer: Answer) async throws {
        let published = try await publishBoth()
        world.server.answer("/" + published.indexDelta.url, with: answer)
        try await update()
        #expect(requests(published.delta.url) == 1 && requests(published.patch.url) == 1)
        #expect(world.bundleRequests == published.bundleRequests)
    }

    /// A delta with the digest in the manifest that leads to no index, or to one that omits no digest.
    @Test(arguments: [false, true])
    func anotherDeltaThanThePublishersIsTakenIfItLeadsToTheIndex(leadsThere: Bool) async throws {
        let published = try await publishBoth()
        let bytes = leadsThere ? try world.object("/" + published.delta.url) : noise(500)
        try offer(indexDelta: bytes)
        try await update()
        #expect(requests("i/other") == 1 && world.bundleRequests == published.bundleRequests)
        #expect(requests(published.delta.url) == (leadsThere ? 0 : 1))
    }

    /// The content of the patch does not lead to the index then; the patch is not downloaded again.
    @Test(arguments: ["small/7", "large", "same"])
    func damagedOldContentCostsTheOtherDelta(file: String) async throws {
        let published = try await publishBoth()
        let offset: Int64 = file == "large" ? 199_900 : 50
        try overwrite(world.path(of: file), noise(500, seed: 99), at: offset)
        try await update()
        #expect(requests(published.patch.url) == 1)
        // Unchanged content is not part of the patch.
        #expect(requests(published.delta.url) == (file == "same" ? 0 : 1))
    }

    @Test func aPatchOfOtherContentCostsPiecesOnly() async throws {
        let published = try await publishBoth()
        var content = try world.object("/" + published.patch.url)
        content[content.count / 2] ^= 1
        try world.offerPatch(content)
        try await update()
        #expect(requests(published.delta.url) == 1)
    }

    /// The part does not decompress, so the patch does not lead to the index.
    @Test(arguments: [true, false])
    func aPartThatIsDamagedCostsTheOtherDeltaAndItsPieces(isFirst: Bool) async throws {
        let published = try await publishBoth(inParts: true)
        var content = try world.object("/" + published.patch.url)
        let frames = try PatchTable.read(from: content).frames
        #expect(frames.count > 1)
        let frame = try #require(isFirst ? frames.first : frames.last)
        for offset in frame { content[Int(offset)] = 7 }
        try world.offerPatch(content)
        try await update(inParts: true)
        #expect(requests(published.delta.url) == 1)
        #expect(world.bundleRequests > published.bundleRequests)
    }

    /// A patch that no server sends is requested for the index alone.
    @Test func aPatchThatIsNotThereIsRequestedOnce() async throws {
        let published = try await publishBoth()
        world.server.answer("/" + published.patch.url, with: .status(404))
        try await update()
        #expect(requests(published.patch.url) == 1 && requests(published.delta.url) == 1)
    }

    @Test func theNextRunContinuesThePatch() async throws {
        let published = try await publishBoth()
        let path = "/" + published.patch.url
        let content = try world.object(path)
        let half = content.count / 2
        let broken = [Answer](repeating: .dropped, count: 80)
        world.server.answer(path, with: [Answer.content(content).cut(after: half)] + broken)
        for url in [published.delta.url, try #require(world.pack?.index?.url)] {
            world.server.answer("/" + url, with: broken)
        }
        guard case .failed(.transfer) = try await world.stage() else { throw Failure() }
        #expect(try world.staged() == old)
        let received = world.server.counts(for: path).bytes
        try world.serve()
        let figures = try await update()
        #expect(figures.reused >= ByteCount(half))
        #expect(world.server.counts(for: path).bytes - received <= content.count - half)
        #expect(
            requests(published.indexDelta.url) == 2
                && world.bundleRequests == published.bundleRequests
        )
    }

    /// An archive may have fewer bytes than the patch after a run that has downloaded most of it.
    @Test func aPatchWithMoreBytesThanTheArchiveIsNotTakenFirst() async throws {
        let published = try await publishBoth(archive: true)
        var pack = try #require(world.pack)
        let archive = try #require(pack.archive)
        let whole = ByteCount(1 << 30)
        pack.index?.deltas[0].patch?.size = whole
        try world.serve(offering: pack)
        #expect(archive.size < whole)
        let figures = try await update()
        #expect(figures.transferred < archive.size + archive.size)
        #expect(requests(published.patch.url) + requests(published.indexDelta.url) == 0)
    }

    /// A plan counts the index and the fewest bytes of the other ways.
    @Test func theBytesOfAManifestStayTheMostThatAnUpdateTransfers() async throws {
        let published = try await publishBoth()
        var reference = try #require(world.pack?.index)
        let base = published.delta.base
        func choice(patch: ByteCount, archive: ByteCount? = nil) -> TransferChoice? {
            var candidates = TransferCandidates(of: reference, isUpdate: true, from: base)
            (candidates.archive, candidates.patch) = (archive, patch)
            return candidates.choiceBeforeIndex
        }
        let (size, bundles) = (published.patch.size, reference.bundleSize)
        #expect(choice(patch: size) != nil)
        #expect(choice(patch: bundles + reference.size) == nil)
        #expect(choice(patch: bundles) != nil)
        #expect(choice(patch: bundles, archive: ByteCount(1)) == nil)
        let most = min(published.delta.size, reference.size)
        reference.deltas[0].patch?.indexDelta?.size = most
        #expect(choice(patch: size) != nil)
        reference.deltas[0].patch?.indexDelta?.size = most + ByteCount(1)
        #expect(choice(patch: size) == nil)
    }

    /// A delta for the patch that has more bytes than the other delta; nothing requests it.
    @Test func aLargerDeltaIsNotTaken() async throws {
        let published = try await publishBoth()
        let bytes = noise(Int(published.delta.size.rawValue) + 1)
        try offer(indexDelta: bytes)
        let figures = try await update()
        #expect(figures.transferred == published.patch.size + published.delta.size)
        #expect(requests("i/other") == 0 && world.bundleRequests == published.bundleRequests)
    }

    /// A repair of this version has its index, also if the manifest names a delta from it.
    @Test func aRepairRequestsNoPatchOfTheVersionItself() async throws {
        let published = try await publishBoth()
        try await update()
        var pack = try #require(world.pack)
        let digest = try #require(pack.index?.contentDigest)
        pack.index?.deltas[0].base = digest
        try world.serve(offering: pack)
        try overwrite(world.path(of: "small/7"), noise(500, seed: 99), at: 50)
        guard case .staged = try await world.stage(repairing: true) else { throw Failure() }
        #expect(try world.staged() == new)
        #expect(requests(published.indexDelta.url) == 1 && requests(published.patch.url) == 1)
    }

    /// A patch from a version that has all content already; its space is free before the content is written.
    @Test func aPatchThatIsNotNeededIsRemovedAtOnce() async throws {
        try await world.publish(old)
        guard case .staged = try await world.stage() else { throw Failure() }
        var fewer = old
        fewer["same"] = nil
        try await world.publish(fewer)
        var pack = try #require(world.pack)
        let delta = try #require(pack.index?.deltas.first)
        #expect(delta.patch == nil)
        let patch = noise(100)
        pack.index?.deltas[0].patch = PackIndex.Patch(
            url: "p/other",
            size: ByteCount(patch.count),
            digest: Digest(of: patch),
            windowSize: .zero,
            prefixSize: .zero,
            indexDelta: PackIndex.CompanionDelta(
                url: delta.url,
                size: delta.size,
                digest: delta.digest
            )
        )
        try world.serve(offering: pack)
        world.server.answer("/p/other", with: .content(patch))
        let reader = try #require(try Container.open(world.root.path.appending("container"))).reader
        let counts = Mutex<[Int?]>([])
        let outcome = try await world.stage { event in
            guard case .chose(let choice) = event, choice.way == .objects else { return }
            let count = try? reader.downloadedSizes().count
            counts.withLock { $0.append(count) }
        }
        guard case .staged = outcome else { throw Failure() }
        #expect(try world.staged() == fewer)
        let found = counts.withLock { $0 }
        #expect(requests("p/other") == 1 && found == [0])
    }

    /// The index of the manifest itself may omit digests, with the right digest of its own: no content has these digests.
    @Test(arguments: [false, true])
    func anIndexThatOmitsDigestsIsNotStaged(restoresThem: Bool) async throws {
        let published = try await publishBoth()
        let before = try #require(world.older.first)
        let bytes = world.previous.omittingDigests(notIn: before).encoded()
        let stored = compressed(bytes)
        var pack = try #require(world.pack)
        var index = try #require(pack.index)
        index.url = "i/zeros"
        index.size = ByteCount(stored.count)
        index.digest = Digest(of: stored)
        index.contentDigest = Digest(of: bytes)
        if !restoresThem { index.deltas[0].patch?.indexDelta = nil }
        pack.index = index
        try world.serve(offering: pack)
        world.server.answer("/i/zeros", with: .content(stored))
        guard case .failed = try await world.stage() else { throw Failure() }
        #expect(try world.staged() == old)
        #expect(requests(published.indexDelta.url) == (restoresThem ? 1 : 0))
    }
}

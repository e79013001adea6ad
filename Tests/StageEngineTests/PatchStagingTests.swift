import FoundationEssentials
import Glibc
import StageContainer
import StageDigest
import StageEngine
import StageFrame
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Updates by a patch from the staged version.
@Suite(.directory, .server)
struct PatchStagingTests {
    private let world: IndexedWorld
    private let old = Self.trees.old
    private let new = Self.trees.new

    init() throws { world = try IndexedWorld() }

    /// Two trees; the second has near copies of one new file, which only a window over all of them finds, and a
    /// file under two names.
    private static let trees = {
        let (old, unfinished) = changedTrees(largeSize: 1_500_000)
        var new = unfinished
        for (name, content) in nearCopies(of: noise(400_000, seed: 7), count: 4) {
            new["new/\(name)"] = content
        }
        new["empty"] = []
        return (old: old, new: new)
    }()

    private struct Failure: Error {}

    /// Publishes the old tree, stages it, and publishes the new one; returns the patch's path on the server.
    @discardableResult
    private func publishBoth(archive: Bool = false) async throws -> String {
        try await world.publish(old, archive: archive)
        guard case .staged = try await world.stage() else { throw Failure() }
        let version = try await world.publish(new, patches: true, archive: archive)
        #expect(version.updates.first?.delta?.frames == nil)
        return try #require(world.patches.first)
    }

    /// Stages the new tree; returns the bytes of bundles, of archives and of the patch that it took.
    @discardableResult
    private func update() async throws -> (bundles: Int, patch: Int, figures: StagingFigures) {
        let before = world.bundleBytes
        guard case .staged(let figures) = try await world.stage() else { throw Failure() }
        #expect(try world.staged() == new)
        let container = try #require(try Container.open(world.root.path.appending("container")))
        #expect(try container.differences(in: try PackID("levels")) == [])
        // No downloaded file remains.
        #expect(try container.reader.downloadedSizes().isEmpty)
        let patch = world.patches.reduce(0) { $0 + world.server.counts(for: $1).bytes }
        return (world.bundleBytes - before, patch, figures)
    }

    @Test func anUpdateTakesThePatchAlone() async throws {
        let path = try await publishBoth()
        let chosen = Chosen()
        let outcome = try await world.stage { event in
            if case .chose(let choice) = event { chosen.ways.withLock { $0.append(choice.way) } }
        }
        guard case .staged(let figures) = outcome else { throw Failure() }
        #expect(try world.staged() == new && chosen.ways.withLock { $0 } == [.patch])
        let delta = try #require(world.pack?.index?.deltas.first)
        let size = try #require(delta.patch?.size)
        #expect(figures.transferred == size + delta.size)
        // The patch has one of the four near copies, and the changes.
        #expect(size < ByteCount(450_000))
        #expect(world.server.counts(for: path).requests == 1)
    }

    @Test func thePlanNamesThePatch() async throws {
        try await publishBoth()
        let delta = try #require(world.pack?.index?.deltas.first)
        let container = try #require(try Container.open(world.root.path.appending("container")))
        let pack = try #require(world.pack)
        let manifest = Manifest(
            application: try ApplicationID("net.example.game"),
            revision: 9,
            packs: [pack]
        )
        let planner = try Planner(manifest: manifest, container: container)
        let plan = planner.plan(for: .packs([pack.id]))
        let choice = try #require(plan.entries.first?.transfer)
        #expect(choice.patch == delta.patch?.size && choice.way == .patch)
    }

    @Test(arguments: [false, true])
    func anUpdateSucceedsIfItsPatchIsMissing(archive: Bool) async throws {
        let path = try await publishBoth(archive: archive)
        world.server.answer(path, with: .status(404))
        let sent = try await update()
        #expect(sent.patch == 0 && (archive || sent.bundles > 1_000_000))
    }

    @Test(arguments: [0, 20, 5000])
    func otherBytesOfThePatchAreNotBelieved(position: Int) async throws {
        let path = try await publishBoth()
        var content = try bytes(of: world.store.path.appending(String(path.dropFirst())))
        content[position] ^= 1
        world.server.answer(path, with: .content(content))
        #expect(try await update().bundles > 1_000_000)
    }

    /// The publisher of the manifest may have made a wrong patch: pieces with other digests are discarded.
    @Test(arguments: [0, 40_000, 200_000])
    func aPatchThatWasMadeBadlyCostsPiecesOnly(position: Int) async throws {
        let path = try await publishBoth()
        var content = try bytes(of: world.store.path.appending(String(path.dropFirst())))
        content[position] ^= 1
        try world.offerPatch(content)
        #expect(try await update().bundles > 0)
    }

    /// Patches of other content, which can be decompressed; without its table, content is not a patch.
    @Test(arguments: [0, 1000, 3_000_000], [false, true])
    func aPatchOfOtherContentCostsPiecesOnly(count: Int, hasTable: Bool) async throws {
        let path = try await publishBoth()
        var compressor = FrameCompressor(level: 3)
        let content = [UInt8](repeating: 7, count: count)
        let frame = compressor.compress(content.span)
        var table = try PatchTable.read(from: world.object(path)).table
        table.parts[0].frameLength = frame.count
        try world.offerPatch(hasTable ? table.encoded() + frame : frame)
        #expect(try await update().bundles > 1_000_000)
    }

    @Test(arguments: ["windowSize", "prefixSize"])
    func aPatchThatNeedsMoreMemoryThanItStatesIsNotUsed(member: String) async throws {
        try await publishBoth()
        var pack = try #require(world.pack)
        var patch = try #require(pack.index?.deltas[0].patch)
        if member == "windowSize" {
            patch.windowSize = ByteCount(100_000)
        } else {
            patch.prefixSize = ByteCount(100_000)
        }
        pack.index?.deltas[0].patch = patch
        try world.serve(offering: pack)
        #expect(try await update().bundles > 1_000_000)
    }

    /// A port at which no server listens.
    @Test func anUpdateSucceedsIfItsPatchCannotBeReached() async throws {
        try await publishBoth()
        var pack = try #require(world.pack)
        pack.index?.deltas[0].patch?.url = "http://127.0.0.1:1/patch"
        try world.serve(offering: pack)
        #expect(try await update().bundles > 1_000_000)
    }

    /// Content that the update replaces may be damaged in any way.
    @Test(arguments: ["large", "small", "small/5"])
    func anUpdateSucceedsIfAnOldFileCannotBeRead(path: String) async throws {
        try await publishBoth()
        let location = world.path(of: path)
        try FileManager.default.removeItem(atPath: location.string)
        if path == "small" {
            try FileManager.default.createSymbolicLink(
                atPath: location.string,
                withDestinationPath: location.string
            )
        } else {
            #expect(unsafe mkfifo(location.string, 0o600) == 0)
        }
        try await update()
    }

    /// The patch writes all files, also those with the same content, while it lies beside them.
    @Test func aPatchIsTakenOnlyWithSpaceForAllFiles() async throws {
        var (old, new) = (["large": noise(500_000)], ["large": noise(500_000)])
        for number in 0..<20 { old["copy/\(number)"] = noise(60_000, seed: 2) }
        var changed = noise(60_000, seed: 2)
        changed[5] ^= 1
        for number in 0..<20 { new["copy/\(number)"] = changed }
        try await world.publish(old)
        guard case .staged = try await world.stage() else { throw Failure() }
        try await world.publish(new, patches: true)
        let patch = try #require(world.pack?.index?.deltas.first?.patch)
        #expect(patch.windowSize < ByteCount(200_000))
        // 20 files of 15 blocks, the patch, and the reserve.
        let needed = patch.size + ByteCount(20 * 61_440 + 16 << 20)
        #expect(try await world.estimate(freeSpace: needed + ByteCount(200_000)) == .patch)
        #expect(try await world.estimate(freeSpace: needed - ByteCount(200_000)) == .objects)
    }

    @Test func progressCountsThePartOfAPatchThatAnEarlierRunLeft() async throws {
        let path = try await publishBoth()
        let content = try bytes(of: world.store.path.appending(String(path.dropFirst())))
        let broken = [Answer](repeating: .dropped, count: 80)
        let half = content.count / 2
        world.server.answer(path, with: [Answer.content(content).cut(after: half)] + broken)
        for bundle in world.bundles { world.server.answer(bundle, with: broken) }
        guard case .failed = try await world.stage() else { throw Failure() }
        try world.serve()
        let pack = try #require(world.pack)
        let manifest = Manifest(
            application: try ApplicationID("net.example.game"),
            revision: 1,
            packs: [pack]
        )
        let plan = Planner(manifest: manifest).plan(for: .packs([pack.id]))
        let progress = Mutex(StagingProgress(plan))
        let excess = Mutex(0)
        let outcome = try await world.stage { event in
            progress.withLock { progress in
                progress.apply(event, to: pack.id)
                if progress.received > progress.downloadSize { excess.withLock { $0 += 1 } }
            }
        }
        guard case .staged(let figures) = outcome else { throw Failure() }
        #expect(figures.reused > ByteCount(half / 2) && excess.withLock { $0 } == 0)
    }

    @Test func oldContentThatWasDamagedIsNotBelieved() async throws {
        try await publishBoth()
        try overwrite(world.path(of: "large"), noise(30_000, seed: 99), at: 400_000)
        try overwrite(world.path(of: "small/7"), [0xFF, 0xFE], at: 100)
        try await update()
    }

    @Test(arguments: ["large", "small/5", "same"])
    func anUpdateSucceedsWithoutAnOldFile(file: String) async throws {
        try await publishBoth()
        try FileManager.default.removeItem(atPath: world.path(of: file).string)
        try await update()
    }

    /// The update fails only if other objects are unreachable, too.
    @Test func anUpdateThatBreaksContinuesWhereItWas() async throws {
        let path = try await publishBoth()
        let content = try bytes(of: world.store.path.appending(String(path.dropFirst())))
        let half = content.count / 2
        let broken = [Answer](repeating: .dropped, count: 40)
        world.server.answer(path, with: [Answer.content(content).cut(after: half)] + broken)
        for bundle in world.bundles { world.server.answer(bundle, with: broken) }
        guard case .failed = try await world.stage() else { throw Failure() }
        #expect(try world.staged() == old)
        let came = world.server.counts(for: path).bytes
        #expect(came >= half / 2)
        try world.serve()
        let sent = try await update()
        #expect(sent.patch - came < content.count - half / 2 && sent.bundles == 0)
        #expect(sent.figures.reused > .zero)
    }

    @Test func anOlderVersionThanTheBaseTakesNoPatch() async throws {
        try await world.publish(old)
        guard case .staged = try await world.stage() else { throw Failure() }
        var between = old
        between["other"] = noise(2000, seed: 5)
        try await world.publish(between)
        try await world.publish(new, patches: true)
        #expect(world.patches.count == 1)
        let sent = try await update()
        #expect(sent.patch == 0 && sent.bundles > 1_000_000)
    }

    @Test func aFirstInstallationTakesNoPatch() async throws {
        try await publishBoth()
        guard case .staged = try await world.stage("other") else { throw Failure() }
        #expect(try world.staged("other") == new)
        #expect(world.patches.allSatisfy { world.server.counts(for: $0).requests == 0 })
    }
}

/// The transfer choices that were reported.
private final class Chosen: Sendable {
    let ways = Mutex<[TransferChoice.Way]>([])
}

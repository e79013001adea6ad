import FoundationEssentials
import StageContainer
import StageDigest
import StageEngine
import StageIndex
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Updates by frames that are encoded as differences from the staged version.
@Suite(.directory, .server)
struct DeltaStagingTests {
    private let world: IndexedWorld
    private let old = Self.trees.old
    private let new = Self.trees.new

    init() throws { world = try IndexedWorld() }

    /// Two trees: every frame of the second one differs, and half of its content is in the first one.
    private static let trees = {
        let large = noise(6_500_000)
        var changed = large
        let other = noise(3_300_000, seed: 7)
        for offset in stride(from: 0, to: large.count - 8192, by: 8192) {
            let part = other[offset / 2..<offset / 2 + 4096]
            changed.replaceSubrange(offset..<offset + 4096, with: part)
        }
        var old: [String: [UInt8]] = ["large": large, "same": noise(100_000, seed: 2)]
        for number in 0..<100 { old["small/\(number)"] = noise(1000, seed: UInt64(number + 10)) }
        var new = old
        new["large"] = changed
        for number in 0..<100 { new["small/\(number)"]?[500] ^= 1 }
        new["other"] = noise(70_000, seed: 3)
        return (old: old, new: new)
    }()

    /// Publishes the old tree, stages it, and publishes the new one.
    private func publishBoth(deltas: Bool = true) async throws {
        try await world.publish(old)
        guard case .staged = try await world.stage() else { throw Failure() }
        try await world.publish(new, deltas: deltas)
    }

    private struct Failure: Error {}

    /// Stages the new tree, and returns the bytes of bundles and delta sets that it took.
    @discardableResult
    private func update() async throws -> (bundles: Int, deltas: Int, StagingFigures) {
        let before = (world.bundleBytes, world.deltaBytes)
        guard case .staged(let figures) = try await world.stage() else { throw Failure() }
        #expect(try world.staged() == new)
        return (world.bundleBytes - before.0, world.deltaBytes - before.1, figures)
    }

    @Test func changedFilesComeFromTheDeltaSet() async throws {
        try await publishBoth()
        let requests = world.bundleRequests
        let sent = try await update()
        let size = try #require(world.pack?.index?.deltas.first?.frames?.size)
        #expect(sent.deltas == size.rawValue)
        // Only the file that resembles no file of the base comes from a bundle.
        #expect(sent.bundles <= 75_000 && world.bundleRequests - requests == 1)
        // The requests are for the table, and for all other frames together.
        #expect(world.deltaRequests == 2)
        let index = try #require(world.pack?.index)
        let expected = ByteCount(sent.bundles + sent.deltas) + index.deltas[0].size
        #expect(sent.2.transferred == expected)
        let container = try #require(try Container.open(world.root.path.appending("container")))
        #expect(try container.differences(in: try PackID("levels")) == [])
    }

    @Test func withoutDifferencesEverythingThatChangedIsFetched() async throws {
        try await publishBoth(deltas: false)
        let sent = try await update()
        #expect(sent.bundles > 6_500_000 && sent.deltas == 0)
    }

    @Test func progressOnlyRisesAndEndsAtAll() async throws {
        try await publishBoth()
        let seen = Seen()
        _ = try await world.stage { event in
            if case .received(let count, _) = event { seen.counts.withLock { $0.append(count) } }
        }
        let counts = seen.counts.withLock { $0 }
        #expect(counts.last == world.pack?.index?.bundleSize)
        #expect(counts.count > 50 && counts == counts.sorted())
    }

    /// A changed byte of the set costs a frame or the whole set, and never the update.
    @Test(arguments: [0, 75, 90, 3000, 100_000, 3_000_000])
    func aSetThatIsDamagedIsMadeUpForByBundles(position: Int) async throws {
        try await publishBoth()
        let path = try #require(world.deltaSets.first)
        var content = try bytes(of: world.store.path.appending(String(path.dropFirst())))
        content[position] ^= 1
        world.server.answer(path, with: .content(content))
        let sent = try await update()
        let table = try #require(world.pack?.index?.deltas[0].frames?.tableSize.rawValue)
        if position < table {
            #expect(sent.deltas == table && sent.bundles > 6_500_000)
        } else {
            #expect(sent.bundles < 500_000)
        }
    }

    @Test(arguments: [Answer.status(404), .status(500), .content([1, 2, 3])])
    func anUpdateSucceedsWithoutADeltaSet(answer: Answer) async throws {
        try await publishBoth()
        for path in world.deltaSets { world.server.answer(path, with: answer) }
        #expect(try await update().bundles > 6_500_000)
        #expect(world.log.all.count { $0.contains("the delta set of a pack cannot be used") } == 1)
    }

    /// A missing object costs as little in a folder as on a server.
    @Test(arguments: ["i", "d"]) func anUpdateFromAFolderSucceedsWithoutADelta(
        kind: String
    ) async throws {
        try await publishBoth()
        world.readsFolder = true
        let delta = try #require(world.pack?.index?.deltas.first)
        let path = kind == "i" ? delta.url : String(try #require(world.deltaSets.first).dropFirst())
        try world.store.removeFile(FilePath(path))
        try await update()
        #expect(world.log.all.contains { $0.contains("cannot be used") })
    }

    /// The whole index replaces a delta that is missing, truncated or wrong; the log states the reason.
    @Test(arguments: [
        (Answer.status(404), "status 404"), (.status(500), "status 500"),
        (.content([1, 2, 3]), "is not the expected one"),
        (.content([1, 2, 3]).cut(after: 1), "cannot be used: "),
    ])
    func anUpdateSucceedsWithoutTheDeltaOfTheIndex(answer: Answer, words: String) async throws {
        try await publishBoth()
        let delta = try #require(world.pack?.index?.deltas.first)
        world.server.answer("/\(delta.url)", with: answer, answer, answer)
        try await update()
        let lines = world.log.all.filter {
            $0.contains("the delta of a pack's index cannot be used")
        }
        #expect(lines.count == 1 && lines[0].contains(words), "\(world.log.all)")
    }

    /// The table comes from the publisher of the manifest: its contents cannot redirect the client.
    @Test func aTableOfOtherVersionsIsNotUsed() async throws {
        try await publishBoth()
        let path = try #require(world.deltaSets.first)
        let object = try bytes(of: world.store.path.appending(String(path.dropFirst())))
        var pack = try #require(world.pack)
        let frames = try #require(pack.index?.deltas[0].frames)
        let size = Int(frames.tableSize.rawValue)
        var set = try DeltaSet(decodingTable: Array(object.prefix(size)))
        set.windows[0].segments[0].entry = 5000
        let table = set.encodedTable()
        let bent = table + object[size...]
        let changed = PackIndex.DeltaFrames(
            size: ByteCount(bent.count),
            digest: Digest(of: bent),
            tableSize: ByteCount(table.count),
            tableDigest: Digest(of: table)
        )
        pack.index?.deltas[0].frames = changed
        world.server.answer("/d/\(changed.digest)", with: .content(bent))
        try world.serve(offering: pack)
        #expect(try await update().bundles > 6_500_000)
    }

    @Test func oldContentThatWasDamagedIsNotBelieved() async throws {
        try await publishBoth()
        try overwrite(world.path(of: "large"), noise(300_000, seed: 99), at: 4_000_000)
        try overwrite(world.path(of: "small/7"), [0xFF, 0xFE], at: 100)
        let sent = try await update()
        #expect(sent.bundles < 6_500_000)
    }

    @Test(arguments: ["large", "small/50"])
    func anUpdateSucceedsWithoutAnOldFile(file: String) async throws {
        try await publishBoth()
        try FileManager.default.removeItem(atPath: world.path(of: file).string)
        try await update()
    }

    @Test func aServerWithoutRangesServesWholeBundles() async throws {
        try await publishBoth()
        try world.serve { $0.ignoringRanges() }
        try await update()
    }

    @Test func aServerThatGivesOtherRangesIsNotBelieved() async throws {
        try await publishBoth()
        try world.serve { answer in answer.with { $0.rangeShift = 10 } }
        try await update()
    }

    @Test func anUpdateThatBreaksContinuesWhereItWas() async throws {
        try await publishBoth()
        let path = try #require(world.deltaSets.first)
        let content = try bytes(of: world.store.path.appending(String(path.dropFirst())))
        // The table and the first range are received.
        let broken = [Answer](repeating: .status(500), count: 40)
        world.server.answer(path, with: [.content(content), .content(content)] + broken)
        // The refusal of a bundle ends the run, and the range that is downloaded in parallel. The content of the files is twice that
        // of the differences.
        let gate = Gate()
        let refusals = broken.map { $0.waiting(for: gate) }
        for bundle in world.bundles { world.server.answer(bundle, with: refusals) }
        let outcome = try await world.stage { event in
            if case .unpacked(let count) = event, count > ByteCount(3_000_000) { gate.open() }
        }
        guard case .failed = outcome else { throw Failure() }
        #expect(try world.staged() == old)
        let whole = content.count
        // The server counts a range that is cut when its connection ends.
        try await poll("no range is counted") { world.deltaBytes > 1_000_000 }
        try world.serve()
        let sent = try await update()
        // Received content is not requested again.
        #expect(sent.deltas < whole - 1_000_000 && sent.bundles < 75_000)
    }
}

/// The reported counts.
private final class Seen: Sendable {
    let counts = Mutex<[ByteCount]>([])
}

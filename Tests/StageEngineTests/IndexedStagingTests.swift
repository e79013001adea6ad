import FoundationEssentials
import StageContainer
import StageEngine
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import StageTransfer
import Synchronization
import SystemPackage
import Testing

@Suite(.directory, .server)
struct IndexedStagingTests {
    private let world: IndexedWorld

    init() throws { world = try IndexedWorld() }

    /// A tree with small, large, empty, equal and executable files.
    private let tree: [String: [UInt8]] = {
        var tree: [String: [UInt8]] = [
            // Names that are equal in Unicode, and different for the file system.
            "caf\u{E9}/a": [1, 2], "cafe\u{301}/b": [3, 4],
            "large/noise": noise(1_500_000), "large/zeros": [UInt8](repeating: 0, count: 700_000),
            "run.sh": Array("#!/bin/sh\n".utf8), "empty": [], "twin": noise(1_500_000),
            "medium": noise(65_536, seed: 9),
        ]
        for number in 0..<300 {
            let text = String(repeating: "line \(number)\n", count: number)
            tree["small/\(number % 7)/\(number)"] = Array(text.utf8)
        }
        return tree
    }()

    private func figures(_ outcome: StagingOutcome) throws -> StagingFigures {
        guard case .staged(let figures) = outcome else {
            throw Failure(text: "not staged: \(outcome)")
        }
        return figures
    }

    private struct Failure: Error { var text: String }

    @Test func aPackIsWhatWasPackaged() async throws {
        try await world.publish(tree, links: ["link": "small/1"], directories: ["nothing/here"])
        let figures = try figures(await world.stage())
        var expected = tree
        expected["link → small/1"] = []
        expected["nothing/here/"] = []
        #expect(try world.staged() == expected)
        let status = try Directory.open(world.path(of: "")).status("run.sh")
        #expect(status?.mode == 0o755)
        #expect(figures.transferred == world.pack?.downloadSize)
        #expect(figures.reused == .zero)
        // Equal content is stored, and fetched, once.
        #expect(world.bundleBytes < 1_900_000)
        let container = try #require(try Container.open(world.root.path.appending("container")))
        #expect(try container.differences(in: try PackID("levels")) == [])
        #expect(
            try FileManager.default.contentsOfDirectory(
                atPath: world.root.path.appending("container/staging").string
            ) == []
        )
    }

    @Test func theSameTreeGivesTheSameObjects() async throws {
        let first = try await world.publish(tree)
        let names = world.bundles
        let other = try IndexedWorld(in: "other")
        let second = try await other.publish(tree)
        #expect(first.reference == second.reference)
        #expect(other.bundles == names)
    }

    @Test func anUpdateFetchesWhatChanged() async throws {
        try await world.publish(tree)
        _ = try await world.stage()
        var changed = tree
        changed["large/noise"]?.insert(contentsOf: [1, 2, 3], at: 700_000)
        changed["small/3/3"] = Array("other".utf8)
        changed["small/1/1"] = nil
        changed["medium"] = nil
        changed["moved"] = tree["medium"]
        let before = world.bundleBytes
        try await world.publish(changed)
        let figures = try figures(await world.stage())
        #expect(try world.staged() == changed)
        #expect(world.bundleBytes - before < 400_000)
        #expect(figures.transferred < ByteCount(400_000))
        #expect(figures.reused > ByteCount(1_000_000))
        // The index was downloaded as a delta.
        let reference = try #require(world.pack?.index)
        #expect(reference.deltas.count == 1)
        #expect(world.server.counts(for: "/" + reference.url).requests == 0)
        #expect(world.server.counts(for: "/" + reference.deltas[0].url).requests == 1)
    }

    @Test func filesOfWhichFewAreLeftAreGatheredApartFromNewOnes() async throws {
        let names = (100..<300).map { "small/\($0)" }
        var tree: [String: [UInt8]] = [:]
        for (seed, name) in names.enumerated() { tree[name] = noise(1000, seed: UInt64(seed)) }
        try await world.publish(tree)
        _ = try figures(await world.stage())
        for name in names.prefix(150) { tree[name] = nil }
        tree["small/new"] = noise(1000, seed: 1000)
        let before = world.bundleBytes
        let packaged = try await world.publish(tree)
        // A first installation does not download the content of removed files.
        #expect(packaged.index.storedSize == ByteCount(51_000))
        #expect(packaged.newBytes == ByteCount(51_000))
        _ = try figures(await world.stage("first"))
        #expect(try world.staged("first") == tree)
        #expect(world.bundleBytes - before == 51_000)
        // An update downloads the content of new files.
        _ = try figures(await world.stage())
        #expect(try world.staged() == tree)
        #expect(world.bundleBytes - before == 52_000)
        // As long as half of a bundle is used, nothing is stored again.
        for name in names[150..<165] { tree[name] = nil }
        #expect(try await world.publish(tree).newBytes == .zero)
    }

    @Test(arguments: [false, true])
    func anUpdateFetchesNoCopiedFrames(ranges: Bool) async throws {
        var tree = ["kept": noise(300_000, seed: 1), "gone": noise(500_000, seed: 2)]
        let first = try await world.publish(tree)
        _ = try figures(await world.stage())
        tree["gone"] = nil
        tree["new"] = noise(70_000, seed: 3)
        let second = try await world.publish(tree)
        #expect(second.repackedBytes == ByteCount(300_000))
        #expect(!second.index.bundles.contains(first.index.bundles[0]))
        if !ranges { try world.serve { $0.ignoringRanges() } }
        let before = world.bundleBytes
        _ = try figures(await world.stage())
        #expect(try world.staged() == tree)
        #expect(world.bundleBytes - before == 70_000)
        // A first installation needs the new bundles alone.
        _ = try figures(await world.stage("first"))
        #expect(try world.staged("first") == tree)
        #expect(world.bundleBytes - before == 70_000 + 370_000)
    }

    @Test func eachOfFiveVersionsIsUpdatedToTheNewest() async throws {
        var changing = tree
        for version in 1...5 {
            changing["small/1/\(version)"] = Array("version \(version)".utf8)
            changing["large/noise"]?[version * 200_000] ^= 1
            changing["only/\(version)"] = noise(70_000, seed: UInt64(100 + version))
            changing["only/\(version - 2)"] = nil
            try await world.publish(changing)
            _ = try figures(await world.stage("container-\(version)"))
        }
        changing["last"] = noise(200_000, seed: 200)
        try await world.publish(changing)
        for version in 1...5 {
            let before = world.bundleRequests
            _ = try figures(await world.stage("container-\(version)"))
            #expect(try world.staged("container-\(version)") == changing)
            #expect(world.bundleRequests - before <= 20)
        }
    }

    @Test func anUpdateBackTakesEverythingFromHere() async throws {
        try await world.publish(tree)
        _ = try await world.stage()
        var changed = tree
        for number in 0..<200 { changed["small/\(number % 7)/\(number)"] = nil }
        try await world.publish(changed)
        let before = world.bundleRequests
        _ = try figures(await world.stage())
        #expect(world.bundleRequests == before)
        #expect(try world.staged() == changed)
    }

    @Test func theOldGenerationIsUntouched() async throws {
        try await world.publish(tree)
        _ = try await world.stage()
        let old = try FileManager.default.destinationOfSymbolicLink(
            atPath: world.root.path.appending("container/packs/levels").string
        )
        var changed = tree
        changed["large/noise"] = noise(1_500_000, seed: 2)
        try await world.publish(changed)
        _ = try figures(await world.stage())
        let path = world.root.path.appending("container/packs").string + "/" + old
        #expect(try bytes(of: FilePath(path + "/large/noise")) == tree["large/noise"])
    }

    @Test func contentThatWasDamagedIsFetchedAgain() async throws {
        try await world.publish(tree)
        _ = try await world.stage()
        for name in ["large/noise", "small/1/190", "twin"] {
            try overwrite(world.path(of: name), [0xFF, 0xFE], at: 1000)
        }
        var changed = tree
        changed["new"] = noise(100_000, seed: 3)
        changed["twin"]?.append(1)
        try await world.publish(changed)
        _ = try figures(await world.stage())
        #expect(try world.staged() == changed)
    }

    /// The same frames, in a file that differs otherwise.
    @Test func aPartThatWasDamagedIsFetchedAgain() async throws {
        let old = ["solo": noise(1_000_000, seed: 4)]
        try await world.publish(old)
        _ = try await world.stage()
        try overwrite(world.path(of: "solo"), [0xFF, 0xFE], at: 1000)
        var changed = old
        changed["solo"]?.append(1)
        let before = world.bundleBytes
        try await world.publish(changed, deltas: false)
        _ = try figures(await world.stage())
        #expect(try world.staged() == changed)
        // The transferred bytes are those of that frame and of the last one, which has 256 KiB at most.
        #expect(world.bundleBytes - before <= 512 << 10)
    }

    @Test func aRepairReplacesWhatIsDamagedAndFetchesNoMore() async throws {
        try await world.publish(tree)
        _ = try await world.stage()
        try overwrite(world.path(of: "large/noise"), [0xFF, 0xFE], at: 1000)
        let before = world.bundleBytes
        let figures = try figures(await world.stage(repairing: true))
        #expect(try world.staged() == tree)
        #expect(world.bundleBytes - before <= 1_600_000)
        #expect(figures.reused > .zero)
    }

    /// Bundles take no space beside the files, each is sent whole once, and the fault of the server is reported once.
    @Test func aServerWithoutRangesServesWholeBundles() async throws {
        var tree = tree
        tree["long"] = noise(9_000_000, seed: 30)
        try await world.publish(tree)
        tree["longer"] = noise(9_000_000, seed: 31)
        let pack = try await world.publish(tree, deltas: false)
        try world.serve { $0.ignoringRanges() }
        let downloads = world.root.path.appending("container/downloads").string
        let (files, faults) = (Seen<Set<String>>([]), Seen(0))
        let outcome = try await world.stage { event in
            switch event {
            case .unpacked:
                let names = try? FileManager.default.contentsOfDirectory(atPath: downloads)
                files.update { $0.formUnion(names ?? []) }
            case .mirrorFailed(_, let reason) where reason.contains("support range requests"):
                faults.update { $0 += 1 }
            default: break
            }
        }
        #expect(try figures(outcome).transferred >= pack.index.storedSize)
        #expect(try world.staged() == tree)
        #expect(files.value == [])
        #expect(faults.value == 1)
        #expect(world.bundles.count > 1)
        for path in world.bundles {
            let whole = world.server.requests(for: path).filter { $0.rangeStart == nil }
            #expect(whole.count == 1)
        }
    }

    @Test func aServerWithoutRangesServesBundlesThatTheNextMirrorLacks() async throws {
        let other = try TestServer()
        defer { other.stop() }
        // Larger than a request for a range, which would otherwise be for the whole bundle.
        let tree = ["long": noise(9_000_000, seed: 41)]
        try await world.publish(tree)
        let mirrors = [world.server.baseURL + "/", other.baseURL + "/"]
        try world.serve(mirrors: mirrors) { $0.ignoringRanges() }
        _ = try figures(await world.stage())
        #expect(try world.staged() == tree)
    }

    /// The frames after a damaged one are written all the same, and the other server has that one.
    @Test func twoDamagedBundlesWithoutRangesMakeAPack() async throws {
        let other = try TestServer()
        defer { other.stop() }
        let tree = ["long": noise(4_000_000, seed: 40)]
        try await world.publish(tree)
        let mirrors = [other.baseURL + "/", world.server.baseURL + "/"]
        try world.serve(mirrors: mirrors) { $0.ignoringRanges() }
        let path = try #require(world.bundles.first)
        for (server, offset) in [(other, 400_000), (world.server, 3_600_000)] {
            var bytes = try world.object(path)
            bytes[offset] ^= 1
            server.answer(path, with: Answer.content(bytes).ignoringRanges())
        }
        _ = try figures(await world.stage())
        #expect(try world.staged() == tree)
    }

    /// After the break, the frame that the first server has damaged is missing, and not the frames after it.
    @Test func aDamagedFrameIsRequestedAgainAfterABrokenConnection() async throws {
        let other = try TestServer()
        defer { other.stop() }
        let tree = ["long": noise(4_000_000, seed: 42)]
        try await world.publish(tree)
        let mirrors = [other.baseURL + "/", world.server.baseURL + "/"]
        try world.serve(mirrors: mirrors) { $0.ignoringRanges() }
        let path = try #require(world.bundles.first)
        let intact = try world.object(path)
        var damaged = intact
        damaged[3_600_000] ^= 1
        other.answer(path, with: Answer.content(damaged).ignoringRanges())
        let whole = Answer.content(intact).ignoringRanges()
        // The first request is for the range from the damaged frame on.
        world.server.answer(path, with: whole, whole.cut(after: 1_000_000), whole)
        _ = try figures(await world.stage())
        #expect(try world.staged() == tree)
        let ranges = world.server.requests(for: path).map { $0.rangeStart != nil }
        #expect(ranges == [true, false, false])
    }

    /// Frames of an obsolete bundle that nothing needs are no progress.
    @Test func aWholeBundleCountsAsItsNeededFrames() async throws {
        var tree = ["kept": noise(4_000_000, seed: 1), "gone": noise(2_000_000, seed: 2)]
        try await world.publish(tree)
        tree["gone"] = nil
        let pack = try await world.publish(tree, deltas: false)
        try world.serve { $0.ignoringRanges() }
        let most = Seen(ByteCount.zero)
        let outcome = try await world.stage { event in
            if case .received(let count, _) = event { most.update { $0 = max($0, count) } }
        }
        _ = try figures(outcome)
        #expect(try world.staged() == tree)
        #expect(most.value == pack.index.storedSize)
    }

    /// A value that events of a run change.
    private final class Seen<Value: Sendable>: Sendable {
        private let state: Mutex<Value>

        init(_ value: Value) { state = Mutex(value) }

        var value: Value { state.withLock { $0 } }

        func update(_ change: (inout Value) -> Void) { state.withLock { change(&$0) } }
    }

    /// A range whose connection breaks resumes after the frames that have arrived.
    @Test func noByteOfAFrameThatArrivedIsRequestedTwice() async throws {
        try await world.publish(["a": noise(9_000_000), "b": noise(3_000_000, seed: 2)])
        let cut = 700_000
        try world.serve { $0.cut(after: cut) }
        let outcome = try await world.stage()
        guard case .staged = outcome else {
            Issue.record("not staged: \(outcome)")
            return
        }
        var continued = 0
        for (number, path) in world.bundles.enumerated() {
            let name = world.previous.bundles.firstIndex { "/b/\($0.digest)" == path } ?? number
            let frames = world.previous.frames.filter { $0.bundle == name }
            let last = Int(world.previous.bundles[name].size) - 1
            let ranges = world.server.requests(for: path).map {
                Int64($0.rangeStart ?? 0)..<Int64($0.rangeEnd ?? last) + 1
            }
            for (earlier, range) in ranges.enumerated() {
                let arrived = range.prefix(cut)
                let complete = frames.filter {
                    $0.range.lowerBound >= arrived.lowerBound
                        && $0.range.upperBound <= arrived.upperBound
                }
                for later in ranges[(earlier + 1)...] {
                    #expect(!complete.contains { $0.range.overlaps(later) })
                }
                let isContinued = ranges[..<earlier].contains { $0.upperBound == range.upperBound }
                if isContinued { continued += 1 }
            }
        }
        #expect(continued > 10)
    }

    @Test func aServerThatGivesOtherRangesIsNotBelieved() async throws {
        try await world.publish(tree)
        try world.serve { answer in answer.with { $0.rangeShift = 10 } }
        _ = try figures(await world.stage())
        #expect(try world.staged() == tree)
    }
}

@Suite(.directory, .server)
struct IndexedFaultTests {
    private let world: IndexedWorld

    init() throws { world = try IndexedWorld() }

    private let tree = ["a": noise(3_000_000), "b": noise(3_000_000, seed: 2), "c": [1, 2, 3]]

    @Test func unverifiedContentIsNotStaged() async throws {
        try await world.publish(tree)
        for path in world.bundles {
            var bytes = try bytes(of: world.store.path.appending(String(path.dropFirst())))
            bytes[bytes.count / 2] ^= 1
            world.server.answer(path, with: .content(bytes))
        }
        guard case .failed(.transfer(.wrongDigest)) = try await world.stage() else {
            Issue.record("bytes that are not right were staged")
            return
        }
        #expect(throws: (any Error).self) { try bytes(of: world.path(of: "c")) }
        // Only one frame is missing.
        try world.serve()
        let before = world.bundleBytes
        guard case .staged(let figures) = try await world.stage() else {
            Issue.record("not staged")
            return
        }
        #expect(try world.staged() == tree)
        #expect(world.bundleBytes - before < 5_000_000)
        #expect(figures.reused > ByteCount(1_000_000))
    }

    @Test func anIndexThatIsNotTheManifestsIsRefused() async throws {
        let packaged = try await world.publish(tree)
        let path = "/" + packaged.reference.url
        var bytes = try bytes(of: world.store.path.appending(packaged.reference.url))
        bytes[20] ^= 1
        world.server.answer(path, with: .content(bytes))
        guard case .failed(.transfer(.wrongDigest)) = try await world.stage() else {
            Issue.record("an index that is not right was taken")
            return
        }
    }

    /// The declared sizes of the pack limit its index, before it is downloaded and before it is decoded.
    @Test func anIndexLargerThanItsPackCanHaveIsRefused() async throws {
        let packaged = try await world.publish(tree)
        var pack = try #require(world.pack)
        pack.index?.contentSize = .mebibytes(64)
        try world.serve(offering: pack)
        let large = StageError.index(reason: "it is larger than one of 3 files can be")
        #expect(try await world.stage() == .failed(large))
        #expect(world.server.requests(for: "/" + packaged.reference.url).isEmpty)
        pack = try #require(world.pack)
        pack.fileCount = 2
        try world.serve(offering: pack)
        guard case .failed(.index(let reason)) = try await world.stage() else {
            Issue.record("an index with more files than declared was taken")
            return
        }
        #expect(reason.contains("more than 2 files and links"))
    }

    @Test func aTransferThatBreaksContinuesWhereItWas() async throws {
        try await world.publish(tree)
        let bundle = try #require(world.bundles.first)
        let bytes = try bytes(of: world.store.path.appending(String(bundle.dropFirst())))
        // The first requested range, of 2 or 4 MiB, arrives completely; the other does not.
        world.server.answer(
            bundle,
            with: [.content(bytes)] + [Answer](repeating: .status(500), count: 40)
        )
        guard case .failed = try await world.stage() else {
            Issue.record("staged from a broken server")
            return
        }
        let before = world.bundleBytes
        try world.serve()
        guard case .staged = try await world.stage() else {
            Issue.record("not staged")
            return
        }
        #expect(try world.staged() == tree)
        #expect(world.bundleBytes - before < 4_500_000)
    }

    /// Content that an earlier run left in the area is verified, like content of a server.
    @Test func contentThatAnEarlierRunLeftIsVerified() async throws {
        try await world.publish(tree)
        let bundle = try #require(world.bundles.first)
        let content = try bytes(of: world.store.path.appending(String(bundle.dropFirst())))
        world.server.answer(
            bundle,
            with: [.content(content)] + [Answer](repeating: .status(500), count: 40)
        )
        _ = try await world.stage()
        let staging = world.root.path.appending("container/staging").string
        let area = try #require(try FileManager.default.contentsOfDirectory(atPath: staging).first)
        for name in ["a", "b"] {
            let path = FilePath("\(staging)/\(area)/content/\(name)")
            guard FileStatus.exists(path) else { continue }
            try overwrite(path, noise(100_000, seed: 77), at: 500_000)
        }
        try world.serve()
        guard case .staged = try await world.stage() else {
            Issue.record("not staged")
            return
        }
        #expect(try world.staged() == tree)
    }

    @Test func aMirrorWithOtherBytesIsLeftForTheNext() async throws {
        let other = try TestServer()
        defer { other.stop() }
        try await world.publish(tree)
        for path in world.bundles {
            var bytes = try bytes(of: world.store.path.appending(String(path.dropFirst())))
            bytes[bytes.count / 2] ^= 1
            other.answer(path, with: .content(bytes))
        }
        for path in ["/" + (world.pack?.index?.url ?? "")] {
            let bytes = try bytes(of: world.store.path.appending(String(path.dropFirst())))
            other.answer(path, with: .content(bytes))
        }
        try world.serve(mirrors: [other.baseURL + "/", world.server.baseURL + "/"])
        guard case .staged = try await world.stage() else {
            Issue.record("not staged")
            return
        }
        #expect(try world.staged() == tree)
    }
}

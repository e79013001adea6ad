import FoundationEssentials
import Glibc
import Logging
import StageContainer
import StageEngine
import StageModel
import StageOnDemand
import StagePack
import StageSystem
import StageTesting
import StageTransfer
import StagingService
import SystemPackage
import Testing

/// Files of an indexed pack that is not staged, through the store of an application.
@Suite(.server, .directory, .serialized, .timeLimit(.minutes(5)))
struct FileOnDemandTests {
    private typealias Fetching = OnDemandTests.Fetching

    private func store(_ world: World, by fetching: OnDemandTests.Fetching) throws -> PackStore {
        var options = StagerOptions { Int64(Date().timeIntervalSince1970) }
        options.transfer.retry.maximumAttempts = 1
        let fetcher: any PackFetcher =
            switch fetching {
            case .command:
                CommandFetcher(
                    source: .manifest(url: world.manifestURL),
                    command: try Program.path,
                    arguments: ["--attempts", "1"]
                )
            case .engine:
                EngineFetcher(
                    target: StagingTarget(manifests: [world.manifestURL]),
                    options: options,
                    logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
                    usesDaemon: false
                )
            }
        return PackStore(containers: [world.container], fetcher: fetcher)
    }

    private func publisher(_ world: World) async throws -> (IndexedPublisher, large: [UInt8]) {
        let publisher = try IndexedPublisher(world)
        let large = noise(600_000, seed: 1)
        try publisher.write(
            [
                "a/large": large, "b": Array("text".utf8), "c": noise(700_000, seed: 2),
                "empty": [],
            ]
        )
        return (publisher, large)
    }

    @Test(arguments: Fetching.allCases)
    func onlyTheFramesOfAFileAreTransferredAndOnlyOnce(
        by fetching: OnDemandTests.Fetching
    )
        async throws
    {
        let world = try World()
        let (publisher, large) = try await publisher(world)
        _ = try await publisher.package(version: 1)
        let store = try store(world, by: fetching)
        #expect(try store.localURL(for: "a/large", inPack: .levels) == nil)
        #expect(try await Array(store.contents(at: "a/large", inPack: .levels)) == large)
        #expect(publisher.bytesSent == large.count)
        #expect(try await Array(store.contents(at: "b", inPack: .levels)) == Array("text".utf8))
        #expect(publisher.bytesSent < large.count + 1000)
        #expect(try world.staged(.levels) == nil)
        // From now on no store requests anything from the server.
        world.server.stop()
        let before = world.server.requests.count
        let other = PackStore(containers: ["/nowhere", world.container])
        for store in [store, other] {
            let url = try await store.url(for: "a/large", inPack: .levels)
            #expect(try store.localURL(for: "a//large/", inPack: .levels) == url)
            #expect(try bytes(of: FilePath(url.path)) == large)
            let descriptor = try await store.descriptor(for: "b", inPack: .levels)
            try descriptor.closeAfter {
                var text = [UInt8](repeating: 0, count: 5)
                let count = try unsafe text.withUnsafeMutableBytes {
                    try unsafe descriptor.read(into: $0)
                }
                #expect(Array(text.prefix(count)) == Array("text".utf8))
            }
        }
        #expect(world.server.requests.count == before)
        #expect(
            await storeError { try await other.url(for: "c", inPack: .levels) }
                == .notStaged(.levels)
        )
    }

    @Test(arguments: Fetching.allCases)
    func aStagedPackIsReadAsItIsStaged(by fetching: OnDemandTests.Fetching) async throws {
        let world = try World()
        let (publisher, large) = try await publisher(world)
        let first = try await publisher.package(version: 1)
        let store = try store(world, by: fetching)
        let root = try await store.loadPack("levels")
        try publisher.write(["a/large": [1], "new": [2]])
        _ = try await publisher.package(version: 2, base: first)
        let before = world.server.requests.count
        let url = try await store.url(for: "a/large", inPack: .levels)
        #expect(url.path == "\(root.path)/a/large".replacing("//", with: "/"))
        #expect(try await Array(store.contents(at: "a/large", inPack: .levels)) == large)
        #expect(try await FileStatus.exists(FilePath(store.url(for: "a", inPack: .levels).path)))
        for path in ["new", "../levels/b", "", "/b", "a/../b", "."] {
            let found = await storeError { try await store.url(for: path, inPack: .levels) }
            #expect(found == .fileNotFound(path))
        }
        #expect(world.server.requests.count == before)
    }

    @Test(arguments: Fetching.allCases)
    func linksModesAndEmptyFilesAreAsInTheStagedTree(
        by fetching: OnDemandTests.Fetching
    )
        async throws
    {
        let world = try World()
        let (publisher, large) = try await publisher(world)
        try publisher.write(["bin/run": Array("#!/bin/sh\n".utf8)])
        let tree = try Directory.open(publisher.tree)
        try #require(try tree.directory("bin")).changeMode(of: "run", to: .executable)
        try tree.createLink("link", to: "folder/large")
        try tree.createLink("folder", to: "a")
        _ = try await publisher.package(version: 1)
        let store = try store(world, by: fetching)
        for (path, content) in [("link", large), ("folder/large", large), ("empty", [])] {
            let url = try await store.url(for: path, inPack: .levels)
            #expect(url.path.hasSuffix("/content/\(path)"))
            #expect(try bytes(of: FilePath(url.path)) == content)
        }
        #expect(publisher.bytesSent == large.count)
        let run = try await store.url(for: "bin/run", inPack: .levels)
        #expect(FileStatus.isExecutable(FilePath(run.path)))
        let text = try await store.url(for: "b", inPack: .levels)
        #expect(!FileStatus.isExecutable(FilePath(text.path)))
    }

    @Test(arguments: Fetching.allCases)
    func aFileThatCannotBeFetchedThrowsAndLeavesNoFiles(
        by fetching: OnDemandTests.Fetching
    ) async throws {
        var world = try World()
        let store = try store(world, by: fetching)
        let none = await storeError { try await store.url(for: "b", inPack: .levels) }
        #expect(try #require(none?.description).contains("the manifest is not available"))
        let (publisher, _) = try await publisher(world)
        _ = try await publisher.package(version: 1)
        for (path, words) in [
            ("d", "none of the searched packs has a file at 'd'"),
            ("b/d", "none of the searched packs has a file at 'b/d'"),
            ("a", "pack 'levels': 'a' is a directory, and files are fetched one by one"),
        ] {
            let found = await storeError { try await store.contents(at: path, inPack: .levels) }
            #expect(found?.description == words)
            #expect(found?.retryAdvice == .never)
        }
        let before = world.server.requests.count
        for path in ["../b", "", "/b", "./b", "a/../b"] {
            let found = await storeError { try await store.url(for: path, inPack: .levels) }
            #expect(found == .fileNotFound(path))
        }
        let options = PackStore.LoadOptions(isOffline: true)
        let offline = await storeError {
            try await store.url(for: "b", inPack: .levels, options: options)
        }
        #expect(offline == .notStaged(.levels))
        #expect(world.server.requests.count == before)
        let unknown = await storeError { try await store.url(for: "b", inPack: .aurora) }
        #expect(unknown?.description == "the manifest has no pack 'aurora'")
        world.server.answer("/manifest.json", with: .status(404))
        let unasked = await storeError { try await store.url(for: "b", inPack: .aurora) }
        #expect(
            unasked?.description.hasPrefix("pack 'aurora': the manifest is not available: ") == true
        )
        #expect(unasked?.retryAdvice == .later)
        world.revision = 2
        try world.publish(try .small(.aurora))
        let whole = await storeError { try await store.url(for: "b", inPack: .aurora) }
        #expect(
            whole?.description
                == "pack 'aurora': it is not an indexed pack, so 'b' cannot be fetched without the whole pack"
        )
    }

    @Test(arguments: Fetching.allCases)
    func aByteThatIsWrongIsAnErrorAndNoFile(by fetching: OnDemandTests.Fetching) async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        let content = noise(400_000, seed: 1)
        try publisher.write(["a": content])
        let index = try await publisher.package(version: 1)
        try publisher.answerForBundles { bundle in
            var damaged = bundle
            damaged[bundle.count / 2] ^= 1
            return .content(damaged)
        }
        let store = try store(world, by: fetching)
        let found = await storeError { try await store.contents(at: "a", inPack: .levels) }
        guard case .fetchFailed(_, let failure) = found else {
            Issue.record("found \(String(describing: found))")
            return
        }
        #expect(failure.reason.contains("is not the expected one"), "\(failure)")
        #expect(try store.localURL(for: "a", inPack: .levels) == nil)
        try publisher.publish(index, version: 1)
        #expect(try await Array(store.contents(at: "a", inPack: .levels)) == content)
    }

    @Test func singleFilesCountInTheSpaceOfTheContainer() async throws {
        struct Listing: Decodable { var containers: [Usage] }
        struct Usage: Decodable { var downloads, singleFiles, total: Int }
        let world = try World()
        let (publisher, large) = try await publisher(world)
        _ = try await publisher.package(version: 1)
        try await world.succeed("load", "levels", "--file", "a/large")
        let json = try await world.succeed("du", "--json")
        let usage = try JSONDecoder().decode(Listing.self, from: Data(json.utf8)).containers.first
        #expect((large.count..<large.count + 100_000).contains(usage?.singleFiles ?? 0), "\(json)")
        #expect(usage.map { $0.downloads + $0.singleFiles } == usage?.total)
        let text = try await world.succeed("du")
        #expect(text.contains("\nsingle files "), "\(text)")
        try await world.succeed("remove", "levels")
        #expect(try await !world.succeed("du").contains("single files"))
    }

    @Test(arguments: Fetching.allCases)
    func callersOfOneFileShareOneTransfer(by fetching: OnDemandTests.Fetching) async throws {
        let world = try World()
        let (publisher, large) = try await publisher(world)
        let index = try await publisher.package(version: 1)
        try publisher.publish(index, version: 1) { $0.slowed(to: 1 << 20) }
        let store = try store(world, by: fetching)
        try await withThrowingTaskGroup(of: [UInt8].self) { group in
            for _ in 0..<6 {
                group.addTask { try await Array(store.contents(at: "a/large", inPack: .levels)) }
            }
            for try await content in group { #expect(content == large) }
        }
        #expect(publisher.bytesSent == large.count)
        let indexes = world.server.requests.filter { $0.target.hasPrefix("/i/") }
        #expect(indexes.count == 1)
    }

    @Test(arguments: Fetching.allCases)
    func aFileWhoseURLAStoreReturnedStaysUntilItIsReleased(
        by fetching: OnDemandTests.Fetching
    )
        async throws
    {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": [1]])
        let first = try await publisher.package(version: 1)
        let store = try store(world, by: fetching)
        let old = try await store.url(for: "a", inPack: .levels)
        try publisher.write(["a": [2]])
        _ = try await publisher.package(version: 2, base: first)
        try await store.fetchManifest()
        let collected = try await world.program.run(["gc", "--container", world.container.string])
        #expect(collected.status == 0 && collected.output.contains("1 generation is being read"))
        #expect(try bytes(of: FilePath(old.path)) == [1])
        // The store now returns the file that the manifest now offers.
        let new = try await store.url(for: "a", inPack: .levels)
        #expect(try bytes(of: FilePath(new.path)) == [2])
        store.release(.levels)
        _ = try await world.program.run(["gc", "--container", world.container.string])
        #expect(!FileStatus.exists(FilePath(old.path)))
        #expect(try store.localURL(for: "a", inPack: .levels) == new)
        #expect(try await store.remove(.levels))
        #expect(try store.localURL(for: "a", inPack: .levels) == nil)
        #expect(try world.names(in: "files") == [])
        #expect(try await !store.remove(.levels))
    }

    @Test(arguments: Fetching.allCases)
    func aTransferThatIsStoppedEndsAndTheNextCallContinues(
        by fetching: OnDemandTests.Fetching
    )
        async throws
    {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        let content = noise(3_000_000, seed: 1)
        try publisher.write(["a/large": content])
        let index = try await publisher.package(version: 1)
        try publisher.answerForBundles { .content($0).stalled(after: 1_000_000) }
        let store = try store(world, by: fetching)
        let task = Task { try await store.url(for: "a/large", inPack: .levels) }
        try await poll { try received(in: world) > 500_000 }
        task.cancel()
        let cancelled = ContinuousClock.now
        #expect(await storeError { try await task.value } == .cancelled)
        // The download was cancelled, and did not end by its timeout.
        #expect(ContinuousClock.now - cancelled < .seconds(30))
        // The server counts a transfer when it has ended.
        try await poll { publisher.bytesSent == 1_000_000 }
        #expect(try store.localURL(for: "a/large", inPack: .levels) == nil)
        let options = PackStore.LoadOptions(timeout: .seconds(1))
        let late = await storeError {
            try await store.url(for: "a/large", inPack: .levels, options: options)
        }
        #expect(late == .timedOut(.levels, after: .seconds(1)))
        try publisher.publish(index, version: 1)
        #expect(try await Array(store.contents(at: "a/large", inPack: .levels)) == content)
        // At least half a megabyte was kept; bytes that were in transit may be lost.
        #expect(publisher.bytesSent <= content.count + 1_500_000)
        #expect(try received(in: world) == 0)
    }

    /// The bytes of a partially downloaded file.
    private func received(in world: World) throws -> Int64 {
        guard FileStatus.exists(world.container) else { return 0 }
        return try world.names(in: "files").reduce(0) { sum, version in
            try world.names(in: "files/\(version)").reduce(sum) { sum, name in
                guard name.hasPrefix("part-") else { return sum }
                let path = FilePath("files/\(version)/\(name)/a/large")
                return sum + (try Directory.open(world.container).status(path)?.size ?? 0)
            }
        }
    }
}

extension PackID {
    /// The id of the indexed pack of these tests.
    fileprivate static let levels = PackID(unchecked: "levels")
}

import StageContainer
import StageEngine
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// A staging area that a killed or failed run left.
@Suite(.directory, .server)
struct ContinuedAreaTests {
    private let world: IndexedWorld

    init() throws { world = try IndexedWorld() }

    private let tree: [String: [UInt8]] = [
        "large/noise": noise(7_000_000), "twin": noise(1_500_000, seed: 3), "run.sh": [1, 2, 3],
        "small/1/1": [1], "small/2/2": [2], "empty": [], "none.sh": [],
    ]

    /// Publishes the tree, and leaves an area with the content of the first range.
    private func leaveArea() async throws -> Directory {
        try await world.publish(tree, links: ["link": "small/1"], directories: ["nothing/here"])
        let bundle = try #require(world.bundles.first)
        let content = try bytes(of: world.store.path.appending(String(bundle.dropFirst())))
        world.server.answer(
            bundle,
            with: [.content(content)] + [Answer](repeating: .status(500), count: 40)
        )
        guard case .failed = try await world.stage() else {
            throw Failure(text: "staged from a broken server")
        }
        try world.serve()
        let staging = try Directory.open(world.root.path.appending("container/staging"))
        let area = try #require(try staging.entries().first)
        return try #require(try staging.directory(FilePath(area.name)))
    }

    private struct Failure: Error { var text: String }

    /// Gives everything below a directory the modes that a umask of 077 leaves before they are set.
    private func narrow(_ directory: Directory) throws -> Int {
        var count = 1
        for entry in try directory.entries() {
            if let below = entry.kind == .directory
                ? try directory.directory(entry.path) : nil
            {
                count += try narrow(below)
            } else if entry.kind == .file {
                try directory.file(updating: entry.path)
                    .setMode([.ownerReadWrite, .groupExecute])
                count += 1
            }
        }
        try directory.setMode(.ownerReadWriteExecute)
        return count
    }

    private func expectWhole() async throws {
        guard case .staged = try await world.stage() else {
            throw Failure(text: "not staged")
        }
        var expected = tree
        expected["link → small/1"] = []
        expected["nothing/here/"] = []
        #expect(try world.staged() == expected)
        let container = try #require(try Container.open(world.root.path.appending("container")))
        #expect(try container.differences(in: try PackID("levels")) == [])
        #expect(try container.reader.faults() == [])
    }

    @Test func modesThatARunDiedBeforeSettingAreSet() async throws {
        let area = try await leaveArea()
        #expect(try narrow(area) > 10)
        try await expectWhole()
    }

    @Test func entriesOfAnotherKindAreReplaced() async throws {
        let area = try await leaveArea()
        let content = try #require(try area.directory("content"))
        for name in ["twin", "small", "run.sh", "link"] as [FilePath.Component] {
            try content.removeTree(name)
        }
        try content.createLink("twin", to: "/dev/zero")
        try content.createLink("small", to: "large")
        _ = try content.makeDirectory("run.sh/")
        _ = try content.file(creating: "link")
        try area.remove("index")
        _ = try area.makeDirectory("index")
        try await expectWhole()
    }

    /// Plans count the space of these files as free, also for runs that need no archive.
    @Test func filesThatARunHasUnpackedAreRemovedBeforeContentIsFetched() async throws {
        let area = try await leaveArea()
        try area.makeDirectory("unpacked").write([1], to: "left", durably: false)
        let path = area.path.appending("unpacked")
        let isPresent = Mutex<Bool?>(nil)
        let outcome = try await world.stage { event in
            guard case .verified = event else { return }
            isPresent.withLock { $0 = FileStatus.exists(path) }
        }
        guard case .staged = outcome else { throw Failure(text: "not staged") }
        let found = isPresent.withLock { $0 }
        #expect(found == false)
        let generation = world.root.path.appending("container/packs/levels/..")
        #expect(!FileStatus.exists(generation.appending("unpacked")))
    }

    /// An area with a file that no run has created is refused, and the next run starts from the beginning.
    @Test func aFileThatTheIndexDoesNotHaveIsRefused() async throws {
        let area = try await leaveArea()
        let content = try #require(try area.directory("content"))
        try content.write([1, 2], to: "planted", durably: false)
        let pack = try #require(world.pack)
        let declared = ContentFigures(
            fileCount: pack.fileCount,
            size: pack.installedSize,
            directoryCount: pack.directoryCount
        )
        var actual = declared
        actual.fileCount += 1
        actual.size += ByteCount(2)
        let error = StageError.incompleteContent(declared: declared, actual: actual)
        #expect(try await world.stage() == .failed(error))
        #expect(try Directory.open(world.root.path.appending("container/staging")).entries() == [])
        try await expectWhole()
    }

    /// A file with a second name belongs to another generation, too, and is not changed.
    @Test func aFileThatAnotherGenerationHasTooIsNotChanged() async throws {
        let area = try await leaveArea()
        let content = try #require(try area.directory("content"))
        let other = try world.root.makeDirectory("other")
        try content.removeTree("run.sh")
        try other.file(creating: "x", permissions: .file).write(Array([1, 2, 3]).span, at: 0)
        try content.createHardLink("run.sh", to: "x", in: other)
        try await expectWhole()
        #expect(try other.status("x")?.mode == 0o644)
    }
}

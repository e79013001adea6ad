import Glibc
import StageArchive
import StageContainer
import StageEngine
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// The steps of staging a pack, from an archive or from an index.
@Suite(.directory, .server)
struct ContentSourceTests {
    enum Source: CaseIterable {
        case archive
        case index
    }

    private let world: IndexedWorld
    private let tree = ["a": noise(300_000), "b/c": noise(2_000_000, seed: 2), "d": [1, 2, 3]]
    private let figures = ContentFigures(
        fileCount: 3,
        size: ByteCount(2_300_003),
        directoryCount: 1
    )

    init() throws { world = try IndexedWorld() }

    private struct Failure: Error { var text: String }

    /// Publishes the tree, and offers it from this source alone.
    private func offer(_ source: Source) async throws -> Pack {
        try await world.publish(tree)
        return source == .archive ? try world.offerArchive(of: tree) : try #require(world.pack)
    }

    private func expectNothingStaged() throws {
        let container = world.root.path.appending("container")
        #expect(try Directory.open(container.appending("staging")).entries() == [])
        #expect(try Directory.open(container.appending("packs")).entries() == [])
        #expect(try Directory.open(container.appending("generations")).entries() == [])
    }

    private func expectStaged() async throws -> StagingFigures {
        let outcome = try await world.stage()
        guard case .staged(let figures) = outcome else { throw Failure(text: "\(outcome)") }
        #expect(try world.staged() == tree)
        let container = try #require(try Container.open(world.root.path.appending("container")))
        #expect(try container.differences(in: try PackID("levels")) == [])
        return figures
    }

    @Test(arguments: Source.allCases, [(1, 0, 0), (0, 1, 0), (0, 0, 1)] as [(Int, Int64, Int)])
    func contentOfOtherFiguresThanDeclaredIsRefused(
        source: Source,
        more: (files: Int, bytes: Int64, directories: Int)
    ) async throws {
        var pack = try await offer(source)
        pack.fileCount += more.files
        pack.installedSize = pack.installedSize + ByteCount(more.bytes)
        pack.directoryCount = try #require(pack.directoryCount) + more.directories
        try world.serve(offering: pack)
        let declared = ContentFigures(
            fileCount: pack.fileCount,
            size: pack.installedSize,
            directoryCount: pack.directoryCount
        )
        let error = StageError.incompleteContent(declared: declared, actual: figures)
        #expect(try await world.stage() == .failed(error))
        try expectNothingStaged()
        #expect(world.bundleRequests == 0)
    }

    /// The archive is not unpacked beyond the stated directories.
    @Test(arguments: Source.allCases)
    func contentWithMoreDirectoriesThanStatedIsRefused(source: Source) async throws {
        var pack = try await offer(source)
        pack.directoryCount = 0
        try world.serve(offering: pack)
        var declared = figures
        declared.directoryCount = 0
        let error: StageError =
            source == .archive
            ? .content(.tooManyEntries(entry: "b", limit: 0))
            : .incompleteContent(declared: declared, actual: figures)
        #expect(try await world.stage() == .failed(error))
        try expectNothingStaged()
        pack.directoryCount = nil
        try world.serve(offering: pack)
        _ = try await expectStaged()
    }

    /// An archive may compromise the process that unpacks it, and another run may have left an area.
    @Test(arguments: Source.allCases)
    func aFileInTheAreaThatTheSourceDoesNotHaveIsRefused(source: Source) async throws {
        _ = try await offer(source)
        let outcome = try await stage { content in
            try content.write([1, 2], to: "planted", durably: false)
        }
        var actual = figures
        actual.fileCount += 1
        actual.size += ByteCount(2)
        let error = StageError.incompleteContent(declared: figures, actual: actual)
        #expect(outcome == .failed(error))
        try expectNothingStaged()
        _ = try await expectStaged()
    }

    /// Stages the pack, and changes its staged content once while the archive is unpacked.
    private func stage(
        changing change: @escaping @Sendable (_ content: Directory) throws -> Void
    ) async throws -> StagingOutcome {
        let staging = world.root.path.appending("container/staging")
        let isChanged = Mutex(false)
        return try await world.stage { event in
            guard case .unpacked = event else { return }
            let isFirst = isChanged.withLock { isChanged in
                defer { isChanged = true }
                return !isChanged
            }
            guard isFirst else { return }
            do {
                let area = try #require(try Directory.open(staging).entries().first)
                try change(try Directory.open(staging.appending(area.name).appending("content")))
            } catch {
                Issue.record(error)
            }
        }
    }

    /// An entry that a compromised decoder can create, and that packs must not contain.
    enum Planted: CaseIterable {
        case linkOutside, linkThroughAnother, linkThatIsNotText, lineBreak, nameThatIsNotText
        case fifo, setUserID, depth

        /// The entry that the error names.
        var entry: String {
            switch self {
            case .linkThroughAnother: "out"
            case .lineBreak: "x\ny"
            case .nameThatIsNotText: "x\u{FFFD}"
            case .depth: Array(repeating: "x", count: 33).joined(separator: "/")
            default: "x"
            }
        }

        /// The number of files that it adds.
        var fileCount: Int {
            switch self {
            case .linkThroughAnother: 2
            case .depth: 0
            default: 1
            }
        }

        func plant(in content: Directory) throws {
            switch self {
            case .linkOutside: try content.createLink("x", to: "/etc/passwd")
            case .linkThroughAnother:
                try content.createLink("up", to: "e/..")
                try content.createLink("out", to: "up/../x")
            case .linkThatIsNotText:
                let target: [CChar] = [0x61, CChar(truncatingIfNeeded: 0xFF), 0]
                let path = content.path.appending("x")
                let status = unsafe path.withPlatformString { unsafe symlink(target, $0) }
                try #require(status == 0)
            case .lineBreak: _ = try content.file(creating: FilePath("x\ny"))
            case .nameThatIsNotText:
                let name: [CChar] = [0x78, CChar(truncatingIfNeeded: 0xFF), 0]
                _ = try content.file(creating: FilePath(platformString: name))
            case .fifo:
                let path = content.path.appending("x")
                let status = unsafe path.withPlatformString { unsafe mkfifo($0, 0o644) }
                try #require(status == 0)
            case .setUserID:
                try content.file(creating: "x").setMode(FilePermissions(rawValue: 0o4755))
            case .depth:
                var directory = content
                for _ in 0..<33 { directory = try directory.makeDirectory("x") }
            }
        }
    }

    @Test(arguments: Planted.allCases)
    func anEntryThatOnlyACompromisedDecoderCreatesIsRefused(planted: Planted) async throws {
        var pack = try await offer(.archive)
        pack.fileCount += planted.fileCount
        pack.directoryCount = nil
        try world.serve(offering: pack)
        let outcome = try await stage { try planted.plant(in: $0) }
        guard case .failed(.content(.notAllowed(let entry, _))) = outcome else {
            throw Failure(text: "\(outcome)")
        }
        #expect(entry == planted.entry)
        try expectNothingStaged()
    }

    /// Another process has staged from a newer manifest since the plan was made; or the publisher has reset the revision, and the
    /// container has no earlier manifest any more.
    @Test(arguments: [true, false])
    func anOlderPlanReplacesNoPackOfANewerManifest(isNewest: Bool) async throws {
        try await world.publish(tree)
        let newer = ["a": noise(1000)]
        let outcome = try await world.stagePlan(storesManifest: isNewest) {
            try await world.publish(newer)
            _ = try await world.stage()
        }
        #expect((outcome == .alreadyStaged) == isNewest)
        #expect(try world.staged() == (isNewest ? newer : tree))
    }

    @Test(arguments: Source.allCases)
    func aPackThatCannotBePublishedIsNotFetchedAgain(source: Source) async throws {
        _ = try await offer(source)
        let container = try Container.make(world.root.path.appending("container")).root
        let generations = try #require(try container.directory("generations"))
        try generations.write([], to: "levels", durably: false)
        guard case .failed(.container(.file)) = try await world.stage() else {
            throw Failure(text: "published below a file")
        }
        try generations.removeTree("levels")
        let figures = try await expectStaged()
        #expect(figures.transferred == .zero)
        #expect(try container.directory("staging")?.entries() == [])
        let left = try #require(try container.directory("downloads")).entries()
        #expect(left.filter { !$0.path.string.hasSuffix(".lock") } == [])
    }

    @Test(arguments: Source.allCases)
    func stepsAreReportedInOneOrder(source: Source) async throws {
        _ = try await offer(source)
        let events = Mutex<[StagingEvent]>([])
        _ = try await world.stage { event in events.withLock { $0.append(event) } }
        var steps: [String] = []
        for event in events.withLock({ $0 }) {
            // The name of the event's case, without its values.
            let step = String("\(event)".prefix { $0 != "(" })
            if step != steps.last { steps.append(step) }
        }
        let last =
            source == .archive
            ? ["connecting", "received", "verified", "unpacked", "publishing", "ended"]
            : ["verified", "publishing", "ended"]
        #expect(steps.suffix(last.count) == last[...])
        #expect(steps.count { $0 == "verified" } == 1)
    }

    @Test func aFileOfAnIndexOfOtherFiguresThanDeclaredIsRefused() async throws {
        var pack = try await offer(.index)
        #expect(try bytes(of: try await world.fetchFile("d", "other")) == tree["d"])
        pack.fileCount += 1
        try world.serve(offering: pack)
        var declared = figures
        declared.fileCount += 1
        let error = StageError.incompleteContent(declared: declared, actual: figures)
        await #expect(throws: error) { try await world.fetchFile("d") }
    }
}

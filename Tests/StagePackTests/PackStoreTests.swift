import FoundationEssentials
import StageContainer
import StageModel
import StagePack
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Staged packs as a store reads them, without a fetcher.
@Suite(.directory) struct PackStoreTests {
    let container: SampleContainer
    let store: PackStore

    init() throws {
        container = try SampleContainer()
        store = PackStore(containers: [container.path])
    }

    @Test func aPackIsThereAsSoonAsItIsPublished() async throws {
        #expect(try store.localURL(for: "aurora") == nil)
        #expect(try store.stagedPacks() == [])
        try container.publish(.aurora, version: 1, ["sky": "blue"])
        let url = try #require(try store.localURL(for: "aurora"))
        #expect(try text("sky", in: url) == "blue")
        #expect(url.hasDirectoryPath)
        #expect(try store.localURL(for: .aurora) == url)
        #expect(try await store.loadPack("aurora") == url)
        #expect(try store.stagedPacks() == [.aurora])
        #expect(try store.record(of: .aurora)?.version == 1)
    }

    @Test(arguments: ["", "..", "a/b", "-a", String(repeating: "a", count: 129)])
    func anIDThatNoPackHasIsRefused(id: String) async throws {
        let fault = try #require(throws: ValueError.self) { try PackID(id) }
        let error = PackStoreError.invalidID(fault)
        #expect(error.retryAdvice == .never)
        #expect(throws: error) { try store.localURL(for: id) }
        await #expect(throws: error) { try await store.loadPack(id) }
    }

    @Test func anUpdateLeavesTheFilesThatAreHandedOut() throws {
        try container.publish(.aurora, version: 1, ["sky": "blue"])
        let old = try #require(try store.localURL(for: "aurora"))
        try container.publish(.aurora, version: 2, ["sky": "red"])
        let new = try #require(try store.localURL(for: "aurora"))
        #expect(old != new)
        #expect(try text("sky", in: new) == "red")
        #expect(try container.removeObsoleteGenerations(of: .aurora) == 0)
        #expect(try text("sky", in: old) == "blue")
        store.release(.aurora)
        #expect(try container.removeObsoleteGenerations(of: .aurora) == 1)
        #expect(!FileStatus.exists(FilePath(old.path)))
        #expect(try text("sky", in: store.localURL(for: "aurora")) == "red")
    }

    @Test func aRemovedPackStaysForTheStoreThatHandedItOut() async throws {
        try container.publish(.aurora, version: 1, ["sky": "blue"])
        let url = try #require(try store.localURL(for: "aurora"))
        let other = PackStore(containers: [container.path])
        #expect(try await other.remove(.aurora))
        #expect(try store.localURL(for: "aurora") == nil)
        #expect(try text("sky", in: url) == "blue")
        #expect(try await !other.remove(.aurora))
        #expect(try store.stagedPacks() == [])
    }

    @Test func aContainerThatIsCreatedAgainIsReadAtOnce() async throws {
        try container.publish(.aurora, version: 1, ["sky": "blue"])
        _ = try #require(try store.localURL(for: "aurora"))
        try FileManager.default.removeItem(atPath: container.path.string)
        #expect(try store.localURL(for: "aurora") == nil)
        #expect(try store.stagedPacks() == [])
        #expect(try store.record(of: .aurora) == nil)
        // The generation has the same name as the deleted one, and needs a lease of its own.
        try container.publish(.aurora, version: 1, ["sky": "red"])
        let url = try #require(try store.localURL(for: "aurora"))
        #expect(try text("sky", in: url) == "red")
        #expect(try store.stagedPacks() == [.aurora])
        try container.publish(.aurora, version: 2, ["sky": "green"])
        #expect(try container.removeObsoleteGenerations(of: .aurora) == 0)
        #expect(try text("sky", in: url) == "red")
    }

    @Test func aContainerThatReplacesAnotherIsReadAtOnce() throws {
        let other = try SampleContainer("other")
        try container.publish(.aurora, version: 1, ["sky": "blue"])
        try other.publish(.levels, version: 1, ["map": "text"])
        #expect(try store.stagedPacks() == [.aurora])
        let path = container.path.string
        try FileManager.default.moveItem(atPath: path, toPath: "\(path).old")
        #expect(try store.stagedPacks() == [.aurora], "the open container still exists")
        try FileManager.default.moveItem(atPath: other.path.string, toPath: path)
        #expect(try store.stagedPacks() == [.levels])
        #expect(try store.localURL(for: "aurora") == nil)
    }

    @Test func aPackThatIsBeingStagedIsNotRemoved() async throws {
        try container.publish(.aurora, version: 1, ["sky": "blue"])
        let lock = try #require(try Container.make(container.path).attemptLock(.aurora))
        let error = await #expect(throws: PackStoreError.self) {
            try await store.remove(.aurora)
        }
        #expect(error == .container(.busy(.aurora)))
        #expect(error?.retryAdvice == .later)
        withExtendedLifetime(lock) {}
    }

    private static let advice: [(PackStoreError, RetryAdvice)] = [
        (.container(.file(FileError("write", path: "x", errno: .noSpace))), .later),
        (.container(.file(FileError("open", path: "x", errno: .tooManyOpenFiles))), .later),
        (.container(.file(FileError(lockedByOthers: "x"))), .later),
        (.container(.file(FileError("open", path: "x", errno: .permissionDenied))), .never),
        (.container(.damagedRecord("x", detail: "no JSON")), .never),
        (.unreadable("x", .tooManyOpenFilesInSystem), .later),
        (.unreadable("x", .permissionDenied), .never),
    ]

    @Test(arguments: advice)
    func theAdviceToRetryFollowsTheCause(error: PackStoreError, advice: RetryAdvice) {
        #expect(error.retryAdvice == advice)
    }

    @Test(arguments: [([], "aurora"), (["levels"], "levels"), (["x", "levels"], "levels")])
    func theFirstPackWithAPathWins(precedence: [String], winner: String) throws {
        let store = PackStore(
            containers: [container.path],
            precedence: try precedence.map { try PackID($0) }
        )
        try container.publish(.levels, version: 1, ["map": "levels", "own": "own"])
        try container.publish(.aurora, version: 1, ["map": "aurora"])
        #expect(try Array(store.contents(at: "map")) == Array(winner.utf8))
        #expect(try Array(store.contents(at: "own")) == Array("own".utf8))
        #expect(
            try Array(store.contents(at: "map", searchingInPack: .levels)) == Array("levels".utf8)
        )
        #expect(try store.stagedPacks().first?.text == winner)
        let descriptor = try store.descriptor(for: "map")
        try descriptor.close()
    }

    @Test(arguments: ["none", "../map", "/map", "a/../map", ".", "sky/x"])
    func aPathThatNoPackHasIsNotFound(path: String) throws {
        try container.publish(.aurora, version: 1, ["sky": "blue"])
        for id in [nil, PackID.aurora] {
            #expect(throws: PackStoreError.fileNotFound(path)) {
                try store.url(for: path, searchingInPack: id)
            }
        }
        #expect(PackStoreError.fileNotFound(path).retryAdvice == .never)
    }

    @Test func aSearchLeasesAndUsesOnlyThePackWithThePath() throws {
        try container.publish(.aurora, version: 1, ["sky": "blue"])
        try container.publish(.levels, version: 1, ["map": "text"])
        let reader = try #require(try ContainerReader.open(container.path))
        #expect(throws: PackStoreError.fileNotFound("none")) { try store.url(for: "none") }
        #expect(throws: PackStoreError.fileNotFound("map")) {
            try store.url(for: "map", searchingInPack: .aurora)
        }
        #expect(throws: PackStoreError.fileNotFound("map")) {
            try store.localURL(for: "map", inPack: .aurora)
        }
        #expect(try reader.inventory().filter(\.isLeased) == [])
        let url = try store.url(for: "map")
        #expect(try reader.inventory().filter(\.isLeased).map(\.id) == [.levels])
        #expect(try !reader.hasBeenLoaded(.aurora))
        #expect(try store.url(for: "map") == url)
        #expect(try Array(Data(contentsOf: url)) == Array("text".utf8))
    }

    @Test func aPathThatIsLongerThanPathsCanBeIsNotFound() throws {
        try container.publish(.aurora, version: 1, ["sky": "blue"])
        let path = String(repeating: "a/", count: 4000) + "a"
        #expect(throws: PackStoreError.fileNotFound(path)) { try store.url(for: path) }
    }

    @Test func aDirectoryIsNoFileToRead() throws {
        try container.publish(.aurora, version: 1, ["sky": "blue"])
        let url = try #require(try store.localURL(for: "aurora"))
        _ = try Directory.open(FilePath(url.path)).makeDirectory("folder")
        let path = FilePath(url.path).appending("folder")
        #expect(throws: PackStoreError.unreadable(path, .isDirectory)) {
            try store.contents(at: "folder")
        }
    }

    @Test func anOfflineStoreFetchesNothing() async throws {
        let fetcher = SampleFetcher { _, _, _ in Issue.record("a fetcher was asked") }
        let store = PackStore(containers: [container.path], fetcher: fetcher)
        let options = PackStore.LoadOptions(isOffline: true)
        let error = await #expect(throws: PackStoreError.self) {
            try await store.loadPack("aurora", options: options)
        }
        #expect(error == .notStaged(.aurora))
        #expect(error?.retryAdvice == .later)
        try container.publish(.aurora, version: 1, ["sky": "blue"])
        #expect(try await text("sky", in: store.loadPack("aurora", options: options)) == "blue")
    }

    // MARK: Single files

    @Test func aSingleFileIsReadWithoutItsPack() async throws {
        try container.keepSingleFiles(of: .levels, ["map": "text"])
        #expect(try store.localURL(for: .levels) == nil)
        let url = try #require(try store.localURL(for: "map", inPack: .levels))
        #expect(try Array(Data(contentsOf: url)) == Array("text".utf8))
        #expect(try await store.url(for: "map", inPack: .levels) == url)
        #expect(try await Array(store.contents(at: "map", inPack: .levels)) == Array("text".utf8))
        #expect(try store.localURL(for: "none", inPack: .levels) == nil)
        await #expect(throws: PackStoreError.notStaged(.levels)) {
            try await store.url(for: "none", inPack: .levels)
        }
        let other = try Container.make(container.path)
        #expect(try other.removePartialContent { _ in false }.inUse == 1)
        store.release(.levels)
        #expect(try other.removePartialContent { _ in false }.leftovers == 1)
        #expect(!FileStatus.exists(FilePath(url.path)))
    }

    @Test func aStagedPackIsReadBeforeSingleFiles() throws {
        try container.keepSingleFiles(of: .levels, ["map": "single", "more": "single"])
        try container.publish(.levels, version: 1, ["map": "staged"])
        let url = try #require(try store.localURL(for: "map", inPack: .levels))
        #expect(try Array(Data(contentsOf: url)) == Array("staged".utf8))
        #expect(throws: PackStoreError.fileNotFound("more")) {
            try store.localURL(for: "more", inPack: .levels)
        }
    }
}

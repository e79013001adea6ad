import BackgroundAssets
import StageContainer
import StageModel
import StagePack
import StageTesting
import Testing

@Suite(.server, .directory, .timeLimit(.minutes(10)))
struct AssetPackManagerTests {
    private typealias Failure = ManagedBackgroundAssetsError

    private func text(_ manager: AssetPackManager, _ path: FilePath) throws -> String {
        String(decoding: try manager.contents(at: path), as: UTF8.self)
    }

    @Test func aPackThatIsStagedIsThereAtOnce() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        let pack = try await world.manager(with: "aurora").assetPack(withID: "aurora")
        world.goOffline()
        let count = world.server.requests.count
        let manager = try world.manager()
        #expect(manager.assetPackIsAvailableLocally(withID: "aurora"))
        try await manager.ensureLocalAvailability(of: pack)
        try await manager.ensureLocalAvailability(of: [pack])
        #expect(try text(manager, "aurora/version.txt") == "1")
        #expect(try await manager.assetPack(withID: "aurora").stagedVersion == 1)
        #expect(world.server.requests.count == count)
    }

    @Test func anApplicationInApplesShapeLoadsItsPacks() async throws {
        var world = try ManagedWorld()
        let lost = try ManagedPack("borealis")
        try world.publish(try ManagedPack("aurora"), lost)
        world.server.answer(lost.path, with: .status(404))
        let loader = TutorialLoader(manager: try world.manager())
        let loaded = await loader.load("aurora/version.txt", of: "aurora")
        #expect(loaded.text == "1" && loaded.fraction == 1)
        #expect(try await loader.loadAll() == ["borealis"])
    }

    @Test func aPackThatIsNotHereIsFetched() async throws {
        var world = try ManagedWorld()
        let sample = try ManagedPack("aurora", byteCount: 10_000)
        try world.publish(sample)
        let manager = try world.manager()
        #expect(!manager.assetPackIsAvailableLocally(withID: "aurora"))
        #expect(throws: Failure.assetPackNotFound(withID: "aurora")) {
            try manager.localVersion(ofAssetPackWithID: "aurora")
        }
        let pack = try await manager.assetPack(withID: "aurora")
        #expect(pack.version == 1)
        #expect(pack.downloadSize == sample.archive.count)
        #expect(pack.stagedVersion == nil)
        try await manager.ensureLocalAvailability(of: pack)
        #expect(manager.assetPackIsAvailableLocally(withID: "aurora"))
        #expect(try manager.localVersion(ofAssetPackWithID: "aurora") == 1)
        #expect(world.server.counts(for: sample.path).requests == 1)
        #expect(try await manager.allAssetPacks == [pack])
        #expect(try await manager.manifest.assetPack(withID: "aurora")?.stagedVersion == 1)
    }

    @Test func anUpdateIsFetchedOnlyWhereTheLatestVersionIsRequired() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        let manager = try await world.manager(with: "aurora")
        let pack = try await manager.assetPack(withID: "aurora")
        try world.publish(try ManagedPack("aurora", version: 2))
        let count = world.server.requests.count
        try await manager.ensureLocalAvailability(of: pack, requireLatestVersion: false)
        #expect(try manager.localVersion(ofAssetPackWithID: "aurora") == 1)
        #expect(world.server.requests.count == count)
        try await manager.ensureLocalAvailability(of: pack, requireLatestVersion: true)
        #expect(try manager.localVersion(ofAssetPackWithID: "aurora") == 2)
        #expect(try text(manager, "aurora/version.txt") == "2")
        try await manager.ensureLocalAvailability(of: pack, requireLatestVersion: true)
        #expect(world.server.counts(for: "/packs/aurora-2.tar").requests == 1)
    }

    @Test func theLatestVersionIsNotAssumedWithoutTheServer() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        let manager = try await world.manager(with: "aurora")
        let pack = try await manager.assetPack(withID: "aurora")
        world.goOffline()
        let error = await #expect(throws: PackStoreError.self) {
            try await manager.ensureLocalAvailability(of: pack, requireLatestVersion: true)
        }
        guard case .manifestUnavailable(let failure) = error else {
            Issue.record("found \(String(describing: error))")
            return
        }
        #expect(failure.reason.contains("503"))
        #expect(error?.localizedDescription == failure.reason)
        #expect(try manager.localVersion(ofAssetPackWithID: "aurora") == 1)
    }

    @Test(arguments: [false, true])
    func ofABatchAPackThatFailsStopsNoOther(requiresLatest: Bool) async throws {
        var world = try ManagedWorld()
        let lost = try ManagedPack("borealis")
        try world.publish(try ManagedPack("aurora"), lost, try ManagedPack("cirrus"))
        world.server.answer(lost.path, with: .status(404))
        let manager = try world.manager()
        let packs = try await manager.allAssetPacks
        let error = await #expect(throws: AssetPackManager.LocalAvailabilityError.self) {
            try await manager.ensureLocalAvailability(
                of: packs,
                requireLatestVersions: requiresLatest
            )
        }
        #expect(Set(error?.successes.map(\.id) ?? []) == ["aurora", "cirrus"])
        #expect(error?.failures.map(\.key.id) == ["borealis"])
        #expect(error?.failures.values.first is PackStoreError)
        #expect(manager.assetPackIsAvailableLocally(withID: "cirrus"))
        #expect(!manager.assetPackIsAvailableLocally(withID: "borealis"))
    }

    @Test func aBatchOfWhichNothingIsKnownFailsAsAWhole() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"), try ManagedPack("cirrus"))
        let manager = try await world.manager(with: "aurora")
        let packs = try await manager.allAssetPacks
        world.goOffline()
        let error = await #expect(throws: AssetPackManager.LocalAvailabilityError.self) {
            try await manager.ensureLocalAvailability(of: packs, requireLatestVersions: true)
        }
        #expect(error?.successes == [])
        #expect(error.map { Set($0.failures.keys) } == packs)
    }

    @Test func aManifestInAnotherFormatMakesNoPackObsolete() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        let manager = try await world.manager(with: "aurora")
        let pack = try await manager.assetPack(withID: "aurora")
        let container = try #require(try Container.open(world.container))
        let application = try ApplicationID("net.example.wallpaper")
        var record = try #require(try container.storedManifest(for: application))
        record.text = "a text"
        record.customFormatApplication = application
        record.receivedAt += 1
        try container.store(record, for: application)
        let count = world.server.requests.count
        #expect(try await manager.allAssetPacks == [])
        #expect(await manager.localStatus(ofAssetPackWithID: "aurora") == .downloaded)
        #expect(try await !manager.status(relativeTo: pack).contains(.obsolete))
        try await manager.ensureLocalAvailability(of: pack)
        #expect(world.server.requests.count == count)
        try await manager.remove(assetPackWithID: "aurora")
        #expect(!manager.assetPackIsAvailableLocally(withID: "aurora"))
    }

    @Test func theStatusReportsStagedAndOfferedVersions() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"), try ManagedPack("cirrus"))
        let manager = try world.manager()
        #expect(await manager.localStatus(ofAssetPackWithID: "aurora") == [])
        #expect(try await manager.status(ofAssetPackWithID: "aurora") == .downloadAvailable)
        let old = try await manager.assetPack(withID: "aurora")
        #expect(try await manager.status(relativeTo: old) == .downloadAvailable)
        try await manager.ensureLocalAvailability(of: old)
        #expect(try await manager.status(relativeTo: old) == [.downloaded, .upToDate])
        #expect(await manager.localStatus(ofAssetPackWithID: "aurora") == .downloaded)

        try world.publish(try ManagedPack("aurora", version: 2))
        // No request was sent to the server yet.
        #expect(try await manager.status(relativeTo: old) == [.downloaded, .upToDate])
        let outdated: AssetPack.Status = [.downloaded, .outOfDate, .updateAvailable]
        #expect(try await manager.status(ofAssetPackWithID: "aurora") == outdated)
        let new = try await manager.assetPack(withID: "aurora")
        #expect(try await manager.status(relativeTo: new) == outdated)
        #expect(try await manager.status(relativeTo: old) == [.downloaded, .upToDate])
        #expect(
            await manager.localStatus(ofAssetPackWithID: "aurora") == [.downloaded, .outOfDate]
        )
        await #expect(throws: Failure.assetPackNotFound(withID: "cirrus")) {
            try await manager.status(ofAssetPackWithID: "cirrus")
        }

        try world.publish(try ManagedPack("cirrus"))
        #expect(
            try await manager.status(ofAssetPackWithID: "aurora") == [.downloaded, .obsolete]
        )
        #expect(
            await manager.localStatus(ofAssetPackWithID: "aurora") == [.downloaded, .obsolete]
        )
        world.goOffline()
        #expect(
            await manager.localStatus(ofAssetPackWithID: "aurora") == [.downloaded, .obsolete]
        )
        await #expect(throws: PackStoreError.self) {
            try await manager.status(ofAssetPackWithID: "aurora")
        }
    }

    @Test func theBitsAreThoseOfApple() {
        let bits: [AssetPack.Status] = [
            .downloadAvailable, .updateAvailable, .upToDate, .outOfDate, .obsolete, .downloading,
            .downloaded,
        ]
        #expect(bits.map(\.rawValue) == [1, 2, 4, 8, 16, 32, 64])
        #expect(SizeCalculationMethod.logical.rawValue == 0)
        #expect(SizeCalculationMethod.allocated.rawValue == 1)
    }

    @Test func theSizeIsThatOfTheFilesOrOfTheirBlocks() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora", byteCount: 9_999))
        let manager = try await world.manager(with: "aurora")
        let logical = try await manager.localSize(
            ofAssetPackWithID: "aurora",
            calculationMethod: .logical
        )
        let allocated = try await manager.localSize(
            ofAssetPackWithID: "aurora",
            calculationMethod: .allocated
        )
        #expect(logical == 10_000)
        #expect(allocated >= 12_288 && allocated % 512 == 0)
        await #expect(throws: Failure.assetPackNotFound(withID: "cirrus")) {
            try await manager.localSize(ofAssetPackWithID: "cirrus", calculationMethod: .logical)
        }
    }

    @Test func aPackWhoseSizeWasReadIsNotInUse() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        let id = try PackID("aurora")
        let fetcher = try world.fetcher()
        try await fetcher.fetch(id, into: world.container, beside: []) { _ in }
        let manager = try world.manager()
        for method in [SizeCalculationMethod.logical, .allocated] {
            _ = try await manager.localSize(ofAssetPackWithID: "aurora", calculationMethod: method)
        }
        let container = try Container.make(world.container)
        #expect(try !container.reader.hasBeenLoaded(id))
        try world.publish(try ManagedPack("aurora", version: 2))
        try await fetcher.fetch(id, into: world.container, beside: []) { _ in }
        #expect(try container.reader.record(of: id)?.version == 2)
        let lock = try #require(try container.attemptLock(id))
        #expect(try container.removeObsoleteGenerations(lock, keeping: 0).inUse == 0)
        withExtendedLifetime(manager) {}
    }

    @Test func aCancelledRemovalLeavesThePack() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        let manager = try await world.manager(with: "aurora")
        let removal = Task {
            while !Task.isCancelled { await Task.yield() }
            try await manager.remove(assetPackWithID: "aurora")
        }
        removal.cancel()
        await #expect(throws: CancellationError.self) { try await removal.value }
        #expect(manager.assetPackIsAvailableLocally(withID: "aurora"))
    }

    @Test(arguments: ["cirrus", "..", ""])
    func aPackThatThereIsNotIsNotFound(id: String) async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        let manager = try world.manager()
        await #expect(throws: Failure.assetPackNotFound(withID: id)) {
            try await manager.assetPack(withID: id)
        }
        #expect(!manager.assetPackIsAvailableLocally(withID: id))
    }

    @Test func anObsoletePackIsNotFoundByFetch() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"), try ManagedPack("cirrus"))
        let manager = try world.manager()
        let pack = try await manager.assetPack(withID: "cirrus")
        try world.publish(try ManagedPack("aurora"))
        await #expect(throws: Failure.assetPackNotFound(withID: "cirrus")) {
            try await manager.ensureLocalAvailability(of: pack)
        }
    }

    @Test func aStoredManifestDoesNotDenyAPackWhileItsServerFails() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"), try ManagedPack("cirrus"))
        let manager = try world.manager()
        let pack = try await manager.assetPack(withID: "cirrus")
        try world.publish(try ManagedPack("aurora"))
        #expect(try await manager.status(ofAssetPackWithID: "aurora") == .downloadAvailable)
        world.goOffline()
        let error = await #expect(throws: PackStoreError.self) {
            try await manager.ensureLocalAvailability(of: pack)
        }
        guard case .fetchFailed(_, let failure)? = error else {
            Issue.record("the error is not that of the fetch")
            return
        }
        #expect(failure.kind == .manifestUnavailable && failure.retryAdvice != .never)
    }

    @Test func allPacksAreOneTree() async throws {
        var world = try ManagedWorld()
        try world.publish(
            try ManagedPack("aurora", files: ["both.txt": [65], "sky/a": [1]]),
            try ManagedPack("cirrus", files: ["both.txt": [67], "sky/c": [2]])
        )
        let manager = try await world.manager(with: "cirrus", "aurora")
        #expect(try manager.contents(at: "sky/a") == Data([1]))
        #expect(try manager.contents(at: "sky/c", options: []) == Data([2]))
        #expect(try manager.contents(at: "both.txt") == Data([65]))
        let other = try world.manager { $0.precedence = ["cirrus"] }
        #expect(try other.contents(at: "both.txt") == Data([67]))
        let named = try manager.contents(at: "both.txt", searchingInAssetPackWithID: "cirrus")
        #expect(named == Data([67]))
        let file = try manager.descriptor(for: "sky/c")
        #expect(try file.closeAfter { try file.seek(offset: 0, from: .end) } == 1)
        let folder = try manager.url(for: "sky")
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == ["a"])
        #expect(throws: Failure.fileNotFound(at: "sky/c")) {
            try manager.contents(at: "sky/c", searchingInAssetPackWithID: "aurora")
        }
        #expect(throws: Failure.assetPackNotFound(withID: "stratus")) {
            try manager.descriptor(for: "sky/c", searchingInAssetPackWithID: "stratus")
        }
    }

    @Test(arguments: ["../pack.json", "sky/../../pack.json", "/etc/passwd", "", "nothing"])
    func aPathThatLeavesThePacksIsNotFound(path: String) async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora", files: ["sky/a": [1]]))
        let manager = try await world.manager(with: "aurora")
        let path = FilePath(path)
        #expect(throws: Failure.fileNotFound(at: path)) { try manager.contents(at: path) }
        #expect(throws: Failure.fileNotFound(at: path)) { try manager.descriptor(for: path) }
        #expect(throws: Failure.fileNotFound(at: path)) { try manager.url(for: path) }
    }

    @Test func aCheckUpdatesOutdatedPacksAndRemovesObsoleteOnes() async throws {
        var world = try ManagedWorld()
        try world.publish(
            try ManagedPack("aurora"),
            try ManagedPack("borealis"),
            try ManagedPack("cirrus"),
            try ManagedPack("stratus")
        )
        let manager = try await world.manager(with: "aurora", "borealis", "cirrus")
        let old = try manager.url(for: "cirrus/version.txt")
        let log = UpdateLog()
        async let recording: Void = log.record(manager.statusUpdates(forAssetPackWithID: "aurora"))
        try world.publish(
            try ManagedPack("aurora", version: 2),
            try ManagedPack("borealis"),
            try ManagedPack("stratus", version: 2)
        )
        let (updating, removed) = try await manager.checkForUpdates()
        #expect(updating == ["aurora"])
        #expect(removed == ["cirrus"])
        await recording
        #expect(await log.names.last == "finished aurora")
        #expect(try manager.localVersion(ofAssetPackWithID: "aurora") == 2)
        #expect(manager.assetPackIsAvailableLocally(withID: "borealis"))
        #expect(!manager.assetPackIsAvailableLocally(withID: "cirrus"))
        #expect(!manager.assetPackIsAvailableLocally(withID: "stratus"))
        #expect(throws: Failure.fileNotFound(at: "cirrus/version.txt")) {
            try manager.url(for: "cirrus/version.txt")
        }
        #expect(try Data(contentsOf: old) == Data("1".utf8))
        let second = try await manager.checkForUpdates()
        #expect(second.updatingIDs == [] && second.removedIDs == [])
        world.goOffline()
        await #expect(throws: PackStoreError.self) { try await manager.checkForUpdates() }
    }

    @Test func aPackIsRemovedAndCanBeFetchedAgain() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        let manager = try await world.manager(with: "aurora")
        let file = try manager.url(for: "aurora/version.txt")
        try await manager.remove(assetPackWithID: "aurora")
        #expect(!manager.assetPackIsAvailableLocally(withID: "aurora"))
        #expect(!FileManager.default.fileExists(atPath: file.path))
        await #expect(throws: Failure.assetPackNotFound(withID: "aurora")) {
            try await manager.remove(assetPackWithID: "aurora")
        }
        try await manager.ensureLocalAvailability(of: manager.assetPack(withID: "aurora"))
        #expect(try text(manager, "aurora/version.txt") == "1")
    }
}

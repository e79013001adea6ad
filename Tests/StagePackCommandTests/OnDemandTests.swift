import FoundationEssentials
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

@Suite(.server, .directory)
struct OnDemandTests {
    /// The fetcher: a separate process, or the engine in this one.
    enum Fetching: CaseIterable {
        case command
        case engine
    }

    private func store(
        _ world: World,
        by fetching: Fetching,
        in containers: [FilePath]? = nil
    ) throws -> PackStore {
        guard fetching == .engine else {
            let containers = containers ?? [world.container]
            return PackStore(containers: containers, fetcher: try command(world))
        }
        var options = StagerOptions { Int64(Date().timeIntervalSince1970) }
        options.transfer.retry.maximumAttempts = 1
        // As root, archives are unpacked only in a separate process.
        options.unpacking = .process(
            try Program.path,
            arguments: ["stagepack", "unpack-service"]
        )
        let fetcher = EngineFetcher(
            target: StagingTarget(manifests: [world.manifestURL]),
            options: options,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            usesDaemon: false
        )
        return PackStore(containers: containers ?? [world.container], fetcher: fetcher)
    }

    private func store(_ world: World, _ arguments: String...) throws -> PackStore {
        PackStore(containers: [world.container], fetcher: try command(world, arguments))
    }

    private func command(_ world: World, _ arguments: [String] = []) throws -> CommandFetcher {
        CommandFetcher(
            source: .manifest(url: world.manifestURL),
            command: try Program.path,
            arguments: ["--attempts", "1"] + arguments
        )
    }

    @Test(arguments: Fetching.allCases)
    func aPackThatIsNotStagedIsFetchedAndItsProgressIsSeen(by fetching: Fetching) async throws {
        var world = try World()
        let pack = try SamplePack.large(.aurora, version: 1, mebibytes: 4)
        let gate = Gate()
        try world.publish(pack) { $0.held(after: 2 << 20, until: gate) }
        let store = try store(world, by: fetching)
        let updates = store.updates()
        async let loaded = store.loadPack("aurora")
        var seen: [PackUpdate] = []
        for await update in updates {
            seen.append(update)
            if case .downloading(_, let progress) = update, progress.received > .zero {
                gate.open()
            }
            if case .finished = update { break }
            if case .failed = update { break }
        }
        let url = try await loaded
        #expect(try StagedFiles(FilePath(url.path)) == StagedFiles(pack))
        #expect(seen.first == .began(try .aurora))
        let received = seen.compactMap { update in
            if case .downloading(_, let progress) = update { progress.received } else { nil }
        }
        #expect(received.contains { $0 > .zero && $0 < pack.pack.downloadSize })
        #expect(received == received.sorted())
        #expect(try await store.loadPack("aurora") == url)
        #expect(world.server.counts(for: pack.path).requests == 1)
    }

    @Test(.apart, arguments: Fetching.allCases)
    func aDeadlineIsReportedAndTheNextCallContinues(by fetching: Fetching) async throws {
        var world = try World()
        let pack = try SamplePack.large(.aurora, version: 1, mebibytes: 8)
        try world.publish(pack)
        world.server.answer(pack.path, with: Answer.content(pack.archive).stalled(after: 2 << 20))
        let store = try store(world, by: fetching)
        let downloads = world.container.appending("downloads")
        // On a busy machine, the first bytes may arrive only after a short timeout.
        for seconds in [4, 16, 64] where partSize(below: downloads) <= 1 << 20 {
            let options = PackStore.LoadOptions(timeout: .seconds(seconds))
            let error = await storeError { try await store.loadPack("aurora", options: options) }
            #expect(error == .timedOut(try .aurora, after: .seconds(seconds)))
            #expect(error?.retryAdvice == .now)
        }
        let count = world.server.requests(for: pack.path).count
        try world.publish(pack)
        let url = try await store.loadPack("aurora")
        #expect(try StagedFiles(FilePath(url.path)) == StagedFiles(pack))
        let starts = world.server.requests(for: pack.path).map { $0.rangeStart ?? 0 }
        #expect(starts.count == count + 1)
        #expect(starts.last ?? 0 > 1 << 20)
    }

    @Test func aFailedFetchHasTheMessageOfTheCommand() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        world.server.answer(pack.path, with: .status(404))
        let store = try store(world)
        let error = await storeError { try await store.loadPack("aurora") }
        let reason = "pack 'aurora': '\(world.server.url(pack.path))' was answered with status 404"
        #expect(
            error
                == .fetchFailed(
                    try .aurora,
                    FetchFailure(.refused, reason: reason, retryAdvice: .later)
                )
        )
        let unknown = await storeError { try await store.loadPack("borealis") }
        let words = FetchFailure(
            .unknownPack,
            reason: "the manifest has no pack 'borealis'",
            retryAdvice: .never
        )
        #expect(unknown == .fetchFailed(try PackID("borealis"), words))
    }

    /// The reasons for which a pack or a manifest is unavailable.
    enum Obstacle: CaseIterable {
        case server, login, refusal, otherContent, noArchive, space
        case manifestServer, manifestLogin, manifestContent, noPack

        var kind: FetchFailure.Kind {
            switch self {
            case .server: .unreachable
            case .login, .manifestLogin: .loginRequired
            case .refusal: .refused
            case .otherContent, .noArchive: .contentInvalid
            case .space: .outOfSpace
            case .manifestServer: .manifestUnavailable
            case .manifestContent: .manifestInvalid
            case .noPack: .unknownPack
            }
        }
    }

    @Test(arguments: Fetching.allCases, Obstacle.allCases)
    func theErrorOfLoadPackNamesTheObstacle(
        by fetching: Fetching,
        _ obstacle: Obstacle
    ) async throws {
        var world = try World()
        let server = world.server
        var pack = try SamplePack.small(.aurora)
        if obstacle == .space { pack.pack.installedSize = .kibibytes(1 << 32) }
        if obstacle == .noArchive {
            pack = SamplePack(try .aurora, archive: Array("no archive".utf8), pack.files)
        }
        try world.publish(obstacle == .noPack ? [] : [pack])
        switch obstacle {
        case .server: server.answer(pack.path, with: Answer.content(pack.archive).cut(after: 9))
        case .login: server.answer(pack.path, with: .status(511))
        case .refusal: server.answer(pack.path, with: .status(403))
        case .otherContent: server.answer(pack.path, with: .content(pack.archive.reversed()))
        case .manifestServer: server.answer("/manifest.json", with: .status(404))
        case .manifestLogin: server.answer("/manifest.json", with: .status(511))
        case .manifestContent: server.answer("/manifest.json", with: .content(Array("{}".utf8)))
        case .noArchive, .space, .noPack: break
        }
        let store = try store(world, by: fetching)
        let error = await storeError { try await store.loadPack("aurora") }
        guard case .fetchFailed(_, let failure) = error else {
            Issue.record("expected a failure of the fetch, found \(String(describing: error))")
            return
        }
        #expect(failure.kind == obstacle.kind, "\(failure)")
    }

    @Test func aPackOfTheStoredManifestIsLoadedWhileTheManifestIsNotToBeHad() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora, policy: .onDemand)
        try world.publish(pack)
        try await world.succeed("prefetch", "--quiet")
        world.server.answer("/manifest.json", with: .status(503))
        let url = try await store(world).loadPack("aurora")
        #expect(try StagedFiles(FilePath(url.path)) == StagedFiles(pack))
    }

    /// An administrator rolled back the pack: a reader would not use a newer copy of the user's.
    @Test(arguments: Fetching.allCases)
    func aPackThatAnotherContainerPinsIsNotFetched(by fetching: Fetching) async throws {
        var world = try World()
        let packs = try [1, 2, 3].map { try SamplePack.small(.aurora, version: $0) }
        try world.publish(packs[0])
        try await world.succeed("prefetch", "--quiet")
        try await world.succeed("pin", "aurora", "--quiet")
        let user = world.directory.path.appending("user")
        let store = try store(world, by: fetching, in: [user, world.container])
        try world.publish(packs[1])
        let error = await storeError { try await store.updatePack(.aurora) }
        guard case .fetchFailed(_, let failure) = error else {
            Issue.record("expected a failure of the fetch, found \(String(describing: error))")
            return
        }
        #expect(failure.kind == .pinned, "\(failure)")
        #expect(world.server.counts(for: packs[1].path).requests == 0)

        try await world.succeed("pin", "--release", "aurora", "--quiet")
        try world.publish(packs[2])
        let url = try await store.updatePack(.aurora)
        #expect(try StagedFiles(FilePath(url.path)) == StagedFiles(packs[2]))
        #expect(try store.container(of: .aurora) == user)
    }

    @Test(arguments: Fetching.allCases)
    func theManifestIsAskedForAlone(by fetching: Fetching) async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        let store = try store(world, by: fetching)
        #expect(try store.storedManifests().isEmpty)
        try await store.fetchManifest()
        let application = try ApplicationID("net.example.wallpaper")
        let text = try #require(store.storedManifests()[application]?.text)
        #expect(try Manifest(json: Array(text.utf8)).packs == [pack.pack])
        #expect(try store.stagedPacks().isEmpty)
        #expect(world.server.counts(for: pack.path).requests == 0)
        world.server.answer("/manifest.json", with: .status(503))
        let error = await #expect(throws: PackStoreError.self) { try await store.fetchManifest() }
        guard case .manifestUnavailable(let failure) = error else {
            Issue.record("found \(String(describing: error))")
            return
        }
        #expect(failure.reason.contains("status 503") && failure.retryAdvice != .never)
    }

    @Test(arguments: Fetching.allCases)
    func aPackIsUpdatedAndRemoved(by fetching: Fetching) async throws {
        var world = try World()
        try world.publish(try .small(.aurora))
        let store = try store(world, by: fetching)
        let old = try await store.loadPack("aurora")
        let pack = try SamplePack.small(.aurora, version: 2)
        try world.publish(pack)
        #expect(try await store.loadPack("aurora") == old)
        let new = try await store.updatePack(.aurora)
        #expect(try StagedFiles(FilePath(new.path)) == StagedFiles(pack))
        #expect(try store.record(of: .aurora)?.version == 2)
        #expect(try await store.remove(.aurora))
        #expect(try store.localURL(for: "aurora") == nil)
        #expect(try await !store.remove(.aurora))
    }

    @Test func anObsoletePackIsRemovedOnceThereIsAManifest() async throws {
        var world = try World()
        try world.publish(try .small(.aurora))
        let store = try store(world)
        #expect(try await store.removeObsoletePacks() == [])
        let url = try await store.loadPack("aurora")
        #expect(try await store.removeObsoletePacks() == [])
        try world.publish()
        try await store.fetchManifest()
        #expect(try await store.removeObsoletePacks() == [try .aurora])
        #expect(try store.stagedPacks() == [])
        // The store keeps the lease as long as it exists.
        #expect(try StagedFiles(FilePath(url.path)) == StagedFiles(try .small(.aurora)))
    }
}

/// Returns the error of a call of a store, if it throws one.
func storeError<Value>(_ body: () async throws -> Value) async -> PackStoreError? {
    do {
        _ = try await body()
        return nil
    } catch {
        return error as? PackStoreError
    }
}

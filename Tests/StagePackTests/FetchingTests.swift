import FoundationEssentials
import StageContainer
import StageModel
import StagePack
import StageTesting
import Synchronization
import SystemPackage
import Testing
import WallpaperStore

/// Packs that a fetcher of the test stages.
@Suite(.directory) struct FetchingTests {
    let container: SampleContainer

    init() throws { container = try SampleContainer() }

    /// A store whose fetcher publishes the pack, and counts its fetches.
    private func publishingStore(_ count: Count = Count()) -> PackStore {
        let fetcher = SampleFetcher { [container] id, path, report in
            #expect(path == container.path)
            let version = count.increment()
            for part in 1...3 { report(.sample(part)) }
            try container.publish(id, version: version, ["sky": "version \(version)"])
        }
        return PackStore(containers: [container.path, "/nowhere"], fetcher: fetcher)
    }

    /// A counter for concurrent tasks.
    private final class Count: Sendable {
        private let value = Mutex(0)

        var current: Int { value.withLock { $0 } }

        func increment() -> Int {
            value.withLock {
                $0 += 1
                return $0
            }
        }
    }

    private func failing(_ error: any Error) -> PackStore {
        PackStore(containers: [container.path], fetcher: SampleFetcher { _, _, _ in throw error })
    }

    @Test func aPackThatIsNotStagedIsFetchedOnce() async throws {
        let count = Count()
        let store = publishingStore(count)
        let url = try await store.loadPack("aurora")
        #expect(try text("sky", in: url) == "version 1")
        #expect(try await store.loadPack("aurora") == url)
        #expect(count.current == 1)
        let reported = Mutex<[FetchProgress]>([])
        let new = try await store.updatePack(.aurora) { progress in
            reported.withLock { $0.append(progress) }
        }
        #expect(try text("sky", in: new) == "version 2")
        #expect(try text("sky", in: url) == "version 1")
        #expect(reported.withLock { $0 } == (1...3).map { FetchProgress.sample($0) })
    }

    @Test func aPackIsLoadedAndUpdatedByTextAndByID() async throws {
        let store = publishingStore()
        let url = try await store.loadPack(PackID.aurora)
        let same = try await store.loadPack("aurora")
        #expect(same == url)
        let new = try await store.updatePack("aurora")
        #expect(try text("sky", in: new) == "version 2")
        let fault = try #require(throws: ValueError.self) { try PackID("not/valid") }
        await #expect(throws: PackStoreError.invalidID(fault)) {
            try await store.updatePack("not/valid")
        }
    }

    @Test func aPackIsFetchedAgainIntoAContainerThatWasDeleted() async throws {
        let count = Count()
        let store = publishingStore(count)
        _ = try await store.loadPack("aurora")
        try FileManager.default.removeItem(atPath: container.path.string)
        let url = try await store.loadPack("aurora")
        #expect(try text("sky", in: url) == "version 2")
        #expect(count.current == 2)
    }

    @Test(arguments: [Duration.seconds(Int64.max), .seconds(Int64.max) * 2])
    func aDeadlineMayBeAsLongAsADuration(_ timeout: Duration) async throws {
        let options = PackStore.LoadOptions(timeout: timeout)
        let url = try await publishingStore().loadPack("aurora", options: options)
        #expect(try text("sky", in: url) == "version 1")
    }

    @Test func listenersReceiveEachStep() async throws {
        let store = publishingStore()
        let listeners = [store.updates(), store.updates()]
        _ = try await store.loadPack("aurora")
        for updates in listeners {
            var seen: [PackUpdate] = []
            for await update in updates {
                seen.append(update)
                if case .finished = update { break }
            }
            let steps = (1...3).map { PackUpdate.downloading(.aurora, .sample($0)) }
            #expect(seen == [.began(.aurora)] + steps + [.finished(.aurora)])
            #expect(seen.allSatisfy { $0.id == .aurora })
        }
    }

    @Test(arguments: [nil, "the network"] as [String?])
    func aSlowListenerMissesProgressBeforeTheEndOfAnotherPack(wait: String?) async throws {
        let fetcher = SampleFetcher { [container] id, _, report in
            for part in 1...200 { report(.sample(part, waitingFor: wait)) }
            try container.publish(id, version: 1, ["sky": "blue"])
        }
        let store = PackStore(containers: [container.path], fetcher: fetcher)
        let updates = store.updates()
        let other = try PackID("other")
        for id in [PackID.aurora, other] { _ = try await store.loadPack(id) }
        var (count, steps) = (0, [PackUpdate]())
        for await update in updates {
            count += 1
            if case .downloading = update { continue }
            steps.append(update)
            if update == .finished(other) { break }
        }
        #expect(steps == [.began(.aurora), .finished(.aurora), .began(other), .finished(other)])
        #expect(count == 64)
    }

    /// A waiting pack sends no update until it continues.
    @Test func progressOfAnotherPackHidesNoWait() async throws {
        let (blocked, block) = AsyncStream.makeStream(of: Void.self)
        let (begun, beginning) = AsyncStream.makeStream(of: Void.self)
        let wait = FetchProgress.sample(1, waitingFor: "the network")
        let fetcher = SampleFetcher { [container] id, _, report in
            if id == .aurora {
                report(wait)
                beginning.finish()
                for await _ in blocked {}
            } else {
                for part in 1...200 { report(.sample(part)) }
            }
            try container.publish(id, version: 1, ["sky": "blue"])
        }
        let store = PackStore(containers: [container.path], fetcher: fetcher)
        let updates = store.updates()
        async let waiting: URL = store.loadPack("aurora")
        defer { block.finish() }
        for await _ in begun {}
        let other = try PackID("other")
        _ = try await store.loadPack(other)
        var seen: [PackUpdate] = []
        for await update in updates {
            if update.id == .aurora { seen.append(update) }
            if update == .finished(other) { break }
        }
        #expect(seen == [.began(.aurora), .downloading(.aurora, wait)])
        block.finish()
        _ = try await waiting
    }

    @Test func manyCallersGetTheOnePackThatIsPublished() async throws {
        let count = Count()
        let fetcher = SampleFetcher { [container] id, _, _ in
            // Only one of several concurrent fetches publishes the pack, as with the lock of the engine.
            guard count.increment() == 1 else {
                while try ContainerReader.open(container.path)?.currentGeneration(of: id) == nil {
                    await Task.yield()
                }
                return
            }
            try container.publish(id, version: 1, ["sky": "blue"])
        }
        let store = PackStore(containers: [container.path], fetcher: fetcher)
        let urls = try await withThrowingTaskGroup(of: URL.self) { group in
            for _ in 0..<20 { group.addTask { try await store.loadPack("aurora") } }
            return try await group.reduce(into: Set<URL>()) { $0.insert($1) }
        }
        #expect(urls.count == 1)
        let before = count.current
        _ = try await store.loadPack("aurora")
        #expect(count.current == before)
    }

    /// Errors of a fetcher reach the application with their advice.
    @Test(arguments: [RetryAdvice.now, .later, .never])
    func aFailureIsReportedWithItsAdvice(advice: RetryAdvice) async throws {
        let failure = FetchFailure(.refused, reason: "status 403", retryAdvice: advice)
        let store = failing(failure)
        let updates = store.updates()
        let error = await #expect(throws: PackStoreError.self) {
            try await store.loadPack("aurora")
        }
        #expect(error == .fetchFailed(.aurora, failure))
        #expect(error?.retryAdvice == advice)
        #expect(error?.description == "pack 'aurora': status 403")
        var seen: [PackUpdate] = []
        for await update in updates {
            seen.append(update)
            if seen.count == 2 { break }
        }
        #expect(seen == [.began(.aurora), .failed(.aurora, .fetchFailed(.aurora, failure))])
        #expect(try store.localURL(for: "aurora") == nil)
    }

    @Test func anotherErrorIsOneToTryAgainLater() async throws {
        let error = await #expect(throws: PackStoreError.self) {
            try await failing(Errno.ioError).loadPack("aurora")
        }
        let failure = FetchFailure(reason: "\(Errno.ioError)", retryAdvice: .later)
        #expect(error == .fetchFailed(.aurora, failure))
    }

    @Test func aFetchThatPublishesNothingIsNoSuccess() async throws {
        let store = PackStore(containers: [container.path], fetcher: SampleFetcher { _, _, _ in })
        let error = await #expect(throws: PackStoreError.self) {
            try await store.loadPack("aurora")
        }
        #expect(error == .notStaged(.aurora))
    }

    @Test func aDeadlineEndsTheFetch() async throws {
        let wasCancelled = Count()
        let fetcher = SampleFetcher { _, _, _ in
            do { try await waitForCancellation() } catch {
                _ = wasCancelled.increment()
                throw error
            }
        }
        let store = PackStore(containers: [container.path], fetcher: fetcher)
        let options = PackStore.LoadOptions(timeout: .milliseconds(20))
        let error = await #expect(throws: PackStoreError.self) {
            try await store.loadPack("aurora", options: options)
        }
        #expect(error == .timedOut(.aurora, after: .milliseconds(20)))
        #expect(error?.retryAdvice == .now)
        #expect(wasCancelled.current == 1)
    }

    @Test func aCancelledTaskEndsTheFetch() async throws {
        let (began, beginning) = AsyncStream.makeStream(of: Void.self)
        let fetcher = SampleFetcher { _, _, _ in
            beginning.finish()
            try await waitForCancellation()
        }
        let store = PackStore(containers: [container.path], fetcher: fetcher)
        let error = await withTaskGroup(of: PackStoreError?.self) { group in
            group.addTask {
                do throws(PackStoreError) {
                    _ = try await store.loadPack("aurora")
                    return nil
                } catch {
                    return error
                }
            }
            for await _ in began {}
            group.cancelAll()
            return await group.next() ?? nil
        }
        #expect(error == .cancelled)
        #expect(error?.retryAdvice == .now)
    }

    @Test func aFileIsFetchedByItself() async throws {
        var fetcher = SampleFetcher { _, _, _ in Issue.record("a pack was asked for") }
        fetcher.onFile = { [container] path, id, root in
            #expect(path.text == "map" && root == container.path)
            try container.keepSingleFiles(of: id, ["map": "text"])
        }
        let store = PackStore(containers: [container.path], fetcher: fetcher)
        #expect(try await Array(store.contents(at: "map", inPack: .levels)) == Array("text".utf8))
        try await store.descriptor(for: "map", inPack: .levels).close()
        #expect(try store.stagedPacks() == [])
        await #expect(throws: PackStoreError.fileNotFound("../map")) {
            try await store.url(for: "../map", inPack: .levels)
        }
    }

    @Test func aFileThatThePackDoesNotHaveIsNotFound() async throws {
        var fetcher = SampleFetcher { _, _, _ in }
        fetcher.onFile = { path, _, _ in throw PackStoreError.fileNotFound(path.text) }
        let store = PackStore(containers: [container.path], fetcher: fetcher)
        await #expect(throws: PackStoreError.fileNotFound("none")) {
            try await store.url(for: "none", inPack: .levels)
        }
    }

    @Test func theManifestIsAskedForWithoutAPack() async throws {
        var fetcher = SampleFetcher { _, _, _ in Issue.record("a pack was asked for") }
        try await PackStore(containers: [container.path], fetcher: fetcher).fetchManifest()
        let failure = FetchFailure(.unreachable, reason: "no answer", retryAdvice: .later)
        fetcher.onManifest = { throw failure }
        let store = PackStore(containers: [container.path], fetcher: fetcher)
        let error = await #expect(throws: PackStoreError.self) { try await store.fetchManifest() }
        #expect(error == .manifestUnavailable(failure))
        #expect(error?.retryAdvice == .later)
        #expect(try store.storedManifests().isEmpty)
        try container.keepSingleFiles(of: .levels, [:])
        #expect(try store.storedManifests().keys.map(\.text) == ["net.example"])
    }

    @Test func wallpapersAreLoadedThroughTheStoreOfTheApplication() async throws {
        #expect(PackStoreError.notConfigured.retryAdvice == .never)
        WallpaperStore.configure(publishingStore())
        #expect(try WallpaperStore.localURL(for: "aurora") == nil)
        let updates = try WallpaperStore.updates()
        let url = try await WallpaperStore.loadPack("aurora")
        #expect(try text("sky", in: url) == "version 1")
        #expect(try WallpaperStore.localURL(for: "aurora") == url)
        #expect(await updates.first { _ in true } == .began(.aurora))
    }

    @Test func aProgramThatIsMissingIsNotAwaited() async throws {
        let fetcher = CommandFetcher(command: "/nonexistent/stagepack")
        let store = PackStore(containers: [container.path], fetcher: fetcher)
        let failure = FetchFailure(
            reason: "the program '/nonexistent/stagepack' does not exist",
            retryAdvice: .never
        )
        await #expect(throws: PackStoreError.fetchFailed(.aurora, failure)) {
            try await store.loadPack("aurora")
        }
        await #expect(throws: PackStoreError.manifestUnavailable(failure)) {
            try await store.fetchManifest()
        }
    }

    @Test func aContainerThatIsNotUTF8IsNotFetchedInto() async throws {
        let name: [CChar] = [0x2F, -0x17, 0]
        let text = container.path.string.utf8CString.dropLast() + name
        let path = unsafe FilePath(platformString: Array(text))
        let fetcher = CommandFetcher(command: "/nonexistent")
        let store = PackStore(containers: [path], fetcher: fetcher)
        let error = await #expect(throws: PackStoreError.self) {
            try await store.loadPack("aurora")
        }
        let words = FetchFailure(
            .containerUnusable,
            reason: "the path of the container is not UTF-8",
            retryAdvice: .never
        )
        #expect(error == .fetchFailed(.aurora, words))
    }
}

extension FetchProgress {
    fileprivate static func sample(_ part: Int, waitingFor wait: String? = nil) -> FetchProgress {
        var progress = FetchProgress(
            received: .kibibytes(Int64(part)),
            downloadSize: .kibibytes(3),
            unpacked: .zero,
            installedSize: .kibibytes(9)
        )
        progress.waitingFor = wait
        return progress
    }
}

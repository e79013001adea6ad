import BackgroundAssets
import StageContainer
import StageModel
import StagePack
import StageTesting
import Synchronization
import Testing

/// Status updates during downloads, and cancellation.
@Suite(.server, .directory, .serialized, .timeLimit(.minutes(10)))
struct AssetPackUpdateTests {
    /// Waits or reports progress as a test chooses before another fetcher does the work.
    private struct ReportingFetcher: PackFetcher {
        var fetcher: CommandFetcher
        var progress: @Sendable (PackID, @Sendable (FetchProgress) -> Void) async throws -> Void

        func fetch(
            _ id: PackID,
            into container: FilePath,
            beside others: [FilePath],
            report: @escaping @Sendable (FetchProgress) -> Void
        ) async throws {
            try await progress(id, report)
            try await fetcher.fetch(id, into: container, beside: others) { _ in }
        }

        func fetchManifest(into container: FilePath) async throws {
            try await fetcher.fetchManifest(into: container)
        }
    }

    /// Blocks its first fetch, even if that is cancelled, until the test releases it.
    private final class HeldFetcher: PackFetcher {
        private let fetcher: CommandFetcher
        private let calls = Mutex(0)
        private let gate: AsyncStream<Void>.Continuation
        private let opening: Task<Void, Never>

        init(_ fetcher: CommandFetcher) {
            self.fetcher = fetcher
            let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
            gate = continuation
            opening = Task { for await _ in stream {} }
        }

        var count: Int { calls.withLock { $0 } }

        /// Completes the first fetch.
        func open() { gate.finish() }

        func fetch(
            _ id: PackID,
            into container: FilePath,
            beside others: [FilePath],
            report: @escaping @Sendable (FetchProgress) -> Void
        ) async throws {
            let isFirst = calls.withLock { count in
                count += 1
                return count == 1
            }
            guard isFirst else {
                return try await fetcher.fetch(
                    id,
                    into: container,
                    beside: others,
                    report: report
                )
            }
            report(FetchProgress(1, of: 2))
            await opening.value
            throw CancellationError()
        }

        /// Asks the server, but not while the first fetch is held.
        func fetchManifest(into container: FilePath) async throws {
            if count == 0 { try await fetcher.fetchManifest(into: container) }
        }
    }

    /// Waits until the download of a pack has started, regardless of the load of the machine.
    private func begin(
        _ updates: some AsyncSequence<AssetPackManager.DownloadStatusUpdate, Never>
    ) async {
        for await case .downloading in updates { return }
    }

    @Test func theUpdatesComeInOrderAndThoseOfOnePackEnd() async throws {
        var world = try ManagedWorld()
        let sample = try ManagedPack("aurora", byteCount: 1 << 20)
        try world.publish(sample, try ManagedPack("cirrus"))
        let gate = Gate()
        let answer = Answer.content(sample.archive).held(after: 1 << 19, until: gate)
        world.server.answer(sample.path, with: answer)
        let manager = try world.manager()
        let pack = try await manager.assetPack(withID: "aurora")
        let (log, all) = (UpdateLog(), UpdateLog())
        // Updates are received from here on, not only once the task runs.
        let everything = manager.statusUpdates
        let watching = Task { await all.record(everything) }
        let updates = manager.statusUpdates(forAssetPackWithID: "aurora")
        async let recording: Void = log.record(updates) { progress in
            #expect(progress.totalUnitCount == Int64(pack.downloadSize))
            if progress.completedUnitCount > 0 { gate.open() }
        }
        try await manager.ensureLocalAvailability(of: manager.assetPack(withID: "cirrus"))
        try await manager.ensureLocalAvailability(of: pack)
        await recording
        #expect(await log.phases == ["began aurora", "downloading aurora", "finished aurora"])
        try await poll { await all.names.last == "finished aurora" }
        #expect(await all.names.first == "began cirrus")
        watching.cancel()
        await watching.value
    }

    @Test func aFetchThatWaitsIsPaused() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        let fetcher = ReportingFetcher(fetcher: try world.fetcher()) { _, report in
            var progress = FetchProgress(5, of: 10)
            progress.waitingFor = "the network"
            report(progress)
            progress.waitingFor = nil
            report(progress)
        }
        let manager = try world.manager { $0.fetcher = fetcher }
        let log = UpdateLog()
        let updates = manager.statusUpdates(forAssetPackWithID: "aurora")
        async let recording: Void = log.record(updates) { progress in
            #expect(progress.totalUnitCount == 10 && progress.completedUnitCount >= 5)
        }
        try await manager.ensureLocalAvailability(of: manager.assetPack(withID: "aurora"))
        await recording
        // As Apple documents it, a download that continues begins again.
        let phases = [
            "began aurora", "paused aurora", "began aurora", "downloading aurora",
            "finished aurora",
        ]
        #expect(await log.phases == phases)
    }

    @Test func theProgressIsCompleteAtTheEnd() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        let fetcher = ReportingFetcher(fetcher: try world.fetcher()) { _, report in
            report(FetchProgress(5, of: 10))
        }
        let manager = try world.manager { $0.fetcher = fetcher }
        let updates = manager.statusUpdates(forAssetPackWithID: "aurora")
        try await manager.ensureLocalAvailability(of: manager.assetPack(withID: "aurora"))
        var last: Progress?
        for await case .downloading(_, let progress) in updates { last = progress }
        #expect(last?.totalUnitCount == 10)
        #expect(last?.completedUnitCount == 10)
    }

    @Test func aFailedDownloadIsReportedWithItsReason() async throws {
        var world = try ManagedWorld()
        let sample = try ManagedPack("aurora")
        try world.publish(sample)
        world.server.answer(sample.path, with: .status(404))
        let manager = try world.manager()
        let log = UpdateLog()
        let updates = manager.statusUpdates(forAssetPackWithID: "aurora")
        async let recording: Void = log.record(updates)
        let pack = try await manager.assetPack(withID: "aurora")
        let error = await #expect(throws: PackStoreError.self) {
            try await manager.ensureLocalAvailability(of: pack)
        }
        await recording
        #expect(error?.localizedDescription.contains("status 404") ?? false)
        #expect(await log.phases.last == "failed aurora")
    }

    @Test func theProgressCancelsAndTheNextCallContinues() async throws {
        var world = try ManagedWorld()
        let sample = try ManagedPack("aurora", byteCount: 4 << 20)
        try world.publish(sample)
        world.server.answer(sample.path, with: .content(sample.archive).stalled(after: 1 << 20))
        let manager = try world.manager()
        let pack = try await manager.assetPack(withID: "aurora")
        let log = UpdateLog()
        let updates = manager.statusUpdates(forAssetPackWithID: "aurora")
        async let recording: Void = log.record(updates) { progress in
            if progress.completedUnitCount > 100_000 { progress.cancel() }
        }
        await #expect(throws: CancellationError.self) {
            try await manager.ensureLocalAvailability(of: pack)
        }
        await recording
        #expect(await log.phases == ["began aurora", "downloading aurora", "cancelled aurora"])
        #expect(await manager.localStatus(ofAssetPackWithID: "aurora") == [])
        world.server.answer(sample.path, with: .content(sample.archive))
        try await manager.ensureLocalAvailability(of: pack)
        let starts = world.server.requests(for: sample.path).map { $0.rangeStart ?? 0 }
        #expect(starts.count == 2 && starts.last ?? 0 > 0)
    }

    @Test func aCallerThatIsCancelledLeavesTheOthersTheirFetch() async throws {
        var world = try ManagedWorld()
        let sample = try ManagedPack("aurora", byteCount: 1 << 20)
        try world.publish(sample)
        let gate = Gate()
        let answer = Answer.content(sample.archive).held(after: 1 << 19, until: gate)
        world.server.answer(sample.path, with: answer)
        let manager = try world.manager()
        let pack = try await manager.assetPack(withID: "aurora")
        let updates = manager.statusUpdates(forAssetPackWithID: "aurora")
        let lasting = Task { try await manager.ensureLocalAvailability(of: pack) }
        // The caller of a download that has begun waits for it, so the download is never without a caller.
        await begin(updates)
        #expect(await manager.localStatus(ofAssetPackWithID: "aurora") == .downloading)
        for _ in 0..<20 {
            let other = Task.immediate { try await manager.ensureLocalAvailability(of: pack) }
            // Reads the stored manifest as the other call does, which most often waits for the download afterwards.
            _ = try await manager.status(relativeTo: pack)
            other.cancel()
            await #expect(throws: CancellationError.self) { try await other.value }
        }
        #expect(!manager.assetPackIsAvailableLocally(withID: "aurora"))
        gate.open()
        try await lasting.value
        #expect(manager.assetPackIsAvailableLocally(withID: "aurora"))
        #expect(world.server.counts(for: sample.path).requests == 1)
    }

    @Test func aFetchWithoutWaitingCallersEnds() async throws {
        var world = try ManagedWorld()
        let sample = try ManagedPack("aurora", byteCount: 1 << 20)
        try world.publish(sample)
        world.server.answer(sample.path, with: .content(sample.archive).stalled(after: 1 << 18))
        let manager = try world.manager()
        let pack = try await manager.assetPack(withID: "aurora")
        let log = UpdateLog()
        let updates = manager.statusUpdates(forAssetPackWithID: "aurora")
        async let recording: Void = log.record(updates)
        let started = manager.statusUpdates(forAssetPackWithID: "aurora")
        let only = Task { try await manager.ensureLocalAvailability(of: pack) }
        await begin(started)
        only.cancel()
        await #expect(throws: CancellationError.self) { try await only.value }
        await recording
        #expect(await log.phases.last == "cancelled aurora")
    }

    /// A waiting pack sends no update until it continues.
    @Test func progressOfAnotherPackHidesNoPause() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"), try ManagedPack("cirrus"))
        let (blocked, block) = AsyncStream.makeStream(of: Void.self)
        let fetcher = ReportingFetcher(fetcher: try world.fetcher()) { id, report in
            var progress = FetchProgress(0, of: 2000)
            if id.text == "aurora" {
                progress.waitingFor = "the network"
                report(progress)
                for await _ in blocked {}
            } else {
                for count in 1...2000 {
                    progress.received = ByteCount(count)
                    report(progress)
                }
            }
        }
        let manager = try world.manager { $0.fetcher = fetcher }
        let pack = try await manager.assetPack(withID: "aurora")
        let other = try await manager.assetPack(withID: "cirrus")
        let all = manager.statusUpdates
        let updates = manager.statusUpdates(forAssetPackWithID: "aurora")
        async let waiting: Void = manager.ensureLocalAvailability(of: pack)
        defer { block.finish() }
        for await case .paused in updates { break }
        try await manager.ensureLocalAvailability(of: other)
        var isPaused = false
        for await update in all {
            if case .paused = update { isPaused = true }
            if case .finished = update { break }
        }
        #expect(isPaused)
        block.finish()
        try await waiting
    }

    @Test func moreThanAFewPacksWaitTheirTurn() async throws {
        var world = try ManagedWorld()
        let samples = try (1...6).map { try ManagedPack("pack\($0)") }
        try world.publish(samples[0], samples[1], samples[2], samples[3], samples[4], samples[5])
        let gate = Gate()
        for sample in samples {
            let answer = Answer.content(sample.archive).waiting(for: gate)
            world.server.answer(sample.path, with: answer)
        }
        let manager = try world.manager()
        let packs = try await manager.allAssetPacks
        async let staged: Void = manager.ensureLocalAvailability(of: packs)
        defer { gate.open() }
        // No archive arrives before the gate is open. The server may count a request that has ended for longer.
        let (server, paths) = (world.server, samples.map(\.path))
        func begun() -> Int { paths.count { server.counts(for: $0).requests > 0 } }
        try await poll("fewer than four are downloaded") { begun() >= 4 }
        let count = try await pollUntilUnchanged { begun() }
        #expect(count == 4)
        gate.open()
        try await staged
        for sample in samples {
            #expect(manager.assetPackIsAvailableLocally(withID: sample.pack.id.text))
        }
    }

    @Test func aFetchThatIsQueuedIsCancelledAtOnce() async throws {
        var world = try ManagedWorld()
        let samples = try (1...5).map { try ManagedPack("pack\($0)") }
        try world.publish(samples[0], samples[1], samples[2], samples[3], samples[4])
        let stuck = Set(samples.dropLast().map(\.pack.id.text))
        // These fetches block until they are cancelled.
        let fetcher = ReportingFetcher(fetcher: try world.fetcher()) { id, _ in
            if stuck.contains(id.text) { try await Task.sleep(for: .seconds(86_400)) }
        }
        let manager = try world.manager { $0.fetcher = fetcher }
        var fetches: [Task<Void, any Error>] = []
        for sample in samples {
            let pack = try await manager.assetPack(withID: sample.pack.id.text)
            fetches.append(Task { try await manager.ensureLocalAvailability(of: pack) })
            try await poll {
                await manager.localStatus(ofAssetPackWithID: pack.id) == .downloading
            }
        }
        let log = UpdateLog()
        let updates = manager.statusUpdates(forAssetPackWithID: "pack5")
        let last = fetches.removeLast()
        last.cancel()
        await #expect(throws: CancellationError.self) { try await last.value }
        await log.record(updates)
        #expect(await log.names == ["cancelled pack5"])
        #expect(await manager.localStatus(ofAssetPackWithID: "pack5") == [])
        #expect(await manager.localStatus(ofAssetPackWithID: "pack4") == .downloading)
        #expect(world.server.counts(for: samples[4].path).requests == 0)
        await #expect(throws: ManagedBackgroundAssetsError.assetPackNotFound(withID: "pack5")) {
            try await manager.remove(assetPackWithID: "pack5")
        }
        // The cancelled download does not block its successor.
        let pack = try await manager.assetPack(withID: "pack5")
        let following = UpdateLog()
        let later = manager.statusUpdates(forAssetPackWithID: "pack5")
        async let second: Void = manager.ensureLocalAvailability(of: pack)
        try await poll { await manager.localStatus(ofAssetPackWithID: "pack5") == .downloading }
        for fetch in fetches { fetch.cancel() }
        await following.record(later)
        #expect(await following.names.first == "began pack5")
        #expect(await following.names.last == "finished pack5")
        try await second
    }

    @Test func aCallDuringACancellationStartsAnotherDownload() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        let fetcher = HeldFetcher(try world.fetcher())
        let manager = try world.manager { $0.fetcher = fetcher }
        let pack = try await manager.assetPack(withID: "aurora")
        let first = Task { try await manager.ensureLocalAvailability(of: pack) }
        try await poll { fetcher.count == 1 }
        first.cancel()
        await #expect(throws: CancellationError.self) { try await first.value }
        let second = Task.immediate { try await manager.ensureLocalAvailability(of: pack) }
        #expect(await manager.localStatus(ofAssetPackWithID: "aurora") == .downloading)
        fetcher.open()
        try await second.value
        #expect(fetcher.count == 2)
        #expect(manager.assetPackIsAvailableLocally(withID: "aurora"))
    }

    @Test func aRemovalWaitsForTheEndOfTheDownload() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        _ = try await world.manager(with: "aurora")
        try world.publish(try ManagedPack("aurora", version: 2))
        let fetcher = HeldFetcher(try world.fetcher())
        let manager = try world.manager { $0.fetcher = fetcher }
        #expect(try await manager.checkForUpdates().updatingIDs == ["aurora"])
        try await poll { fetcher.count == 1 }
        let removal = Task.immediate { try await manager.remove(assetPackWithID: "aurora") }
        #expect(await manager.localStatus(ofAssetPackWithID: "aurora").contains(.downloading))
        #expect(manager.assetPackIsAvailableLocally(withID: "aurora"))
        fetcher.open()
        try await removal.value
        #expect(!manager.assetPackIsAvailableLocally(withID: "aurora"))
    }

    @Test func aRemovalEndsTheFirstDownloadOfAPack() async throws {
        var world = try ManagedWorld()
        let sample = try ManagedPack("aurora", byteCount: 1 << 20)
        try world.publish(sample)
        world.server.answer(sample.path, with: .content(sample.archive).stalled(after: 1 << 18))
        let manager = try world.manager()
        let pack = try await manager.assetPack(withID: "aurora")
        let updates = manager.statusUpdates(forAssetPackWithID: "aurora")
        let fetch = Task { try await manager.ensureLocalAvailability(of: pack) }
        await begin(updates)
        try await manager.remove(assetPackWithID: "aurora")
        await #expect(throws: CancellationError.self) { try await fetch.value }
        await #expect(throws: ManagedBackgroundAssetsError.assetPackNotFound(withID: "aurora")) {
            try await manager.remove(assetPackWithID: "aurora")
        }
    }

    @Test func aPinnedPackIsNeitherUpdatedNorRemoved() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        let manager = try await world.manager(with: "aurora")
        let container = try #require(try Container.open(world.container))
        let id = try PackID("aurora")
        do {
            let lock = try #require(try container.attemptLock(id))
            _ = try container.pin(lock, now: 1)
        }
        let newer = try ManagedPack("aurora", version: 2)
        try world.publish(newer)
        #expect(try await manager.checkForUpdates().updatingIDs == [])
        await #expect(throws: PackStoreError.container(.pinned(id, version: 1))) {
            try await manager.remove(assetPackWithID: "aurora")
        }
        #expect(try manager.localVersion(ofAssetPackWithID: "aurora") == 1)
        #expect(world.server.counts(for: newer.path).requests == 0)
    }

    @Test func aCheckDuringACancellationStartsAnotherUpdate() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        _ = try await world.manager(with: "aurora")
        try world.publish(try ManagedPack("aurora", version: 2))
        let fetcher = HeldFetcher(try world.fetcher())
        let manager = try world.manager { $0.fetcher = fetcher }
        let updates = manager.statusUpdates(forAssetPackWithID: "aurora")
        #expect(try await manager.checkForUpdates().updatingIDs == ["aurora"])
        for await case .downloading(_, let progress) in updates {
            progress.cancel()
            break
        }
        let check = Task.immediate { try await manager.checkForUpdates().updatingIDs }
        #expect(await manager.localStatus(ofAssetPackWithID: "aurora").contains(.downloading))
        fetcher.open()
        #expect(try await check.value == ["aurora"])
        try await poll { try manager.localVersion(ofAssetPackWithID: "aurora") == 2 }
    }
}

extension FetchProgress {
    /// Creates the progress of a download that is as large as the installed pack.
    fileprivate init(_ received: Int, of size: Int) {
        self.init(
            received: ByteCount(received),
            downloadSize: ByteCount(size),
            unpacked: .zero,
            installedSize: ByteCount(size)
        )
    }
}

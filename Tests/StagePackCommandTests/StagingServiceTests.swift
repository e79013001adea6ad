import FoundationEssentials
import Glibc
import Logging
import StageContainer
import StageControl
import StageEngine
import StageModel
import StagePack
import StageSystem
import StageTesting
import StageTransfer
import StagingService
import Synchronization
import SystemPackage
import Testing

/// Staging through the library, in this process.
@Suite(.server, .directory)
struct StagingServiceTests {
    /// The updates of a run as words, in order.
    private final class Updates: Sendable {
        private let words = Mutex<[String]>([])

        func take(_ update: StagingUpdate) {
            let word =
                switch update {
                case .manifest: "manifest"
                case .began(let plan): "began \(plan.packsToStage.map(\.id.text))"
                case .pack(let id, .ended(.staged)): "staged \(id)"
                case .pack(let id, .waitingForOther): "waiting \(id)"
                case .pack(let id, _): "pack \(id)"
                case .ended: "ended"
                default: "\(update)"
                }
            words.withLock { words in if words.last != word { words.append(word) } }
        }

        var all: [String] { words.withLock { $0 } }
    }

    private func request(
        _ world: World,
        _ packs: StagingRequest.Packs = .event(.install, essentialOnly: false),
        registration: Registration? = nil
    ) throws -> StagingRequest {
        var target = StagingTarget(manifests: [world.manifestURL], environment: [:])
        target.container = world.container
        target.registration = registration
        var options = StagerOptions { Int64(Date().timeIntervalSince1970) }
        options.transfer.retry.maximumAttempts = 1
        // As root, archives are unpacked only in a separate process.
        options.unpacking = .process(
            try Program.path,
            arguments: ["stagepack", "unpack-service"]
        )
        var request = StagingRequest(packs, of: target, options: options)
        // The test must not use a daemon of this machine.
        request.usesDaemon = false
        return request
    }

    private func service(_ request: StagingRequest, _ updates: Updates? = nil) -> StagingService {
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        return StagingService(request, logger: logger) { updates?.take($0) }
    }

    private func registration(_ world: World) throws -> Registration {
        Registration(
            application: try ApplicationID("net.example.wallpaper"),
            version: "1.0",
            group: try ApplicationGroupID("net.example"),
            manifestURLs: [world.manifestURL],
            trust: .transport
        )
    }

    private func history(_ world: World) throws -> StagingHistory {
        let reader = try #require(try ContainerReader.open(world.container))
        return try #require(try reader.history(of: try ApplicationID("net.example.wallpaper")))
    }

    @Test func packsAreStagedAndEverythingIsReportedInOrder() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        let updates = Updates()
        let results = try await service(try request(world), updates).stage()
        #expect(results.map(\.container) == [world.container])
        #expect(results.map(\.revision) == [1])
        let staged = try #require(results.first?.packs.first)
        #expect(staged.outcome == .staged && staged.reason == .missing && staged.failure == nil)
        #expect(staged.transferred == pack.pack.downloadSize)
        #expect(results.first?.transferred == pack.pack.downloadSize)
        #expect(try world.staged(.aurora) == StagedFiles(pack))
        let words = updates.all.filter { $0 != "pack aurora" }
        #expect(words == ["manifest", #"began ["aurora"]"#, "staged aurora", "ended"])
        let again = try await service(try request(world)).stage()
        #expect(again.first?.packs.map(\.outcome) == [.present])
        #expect(again.first?.packs.map(\.reason) == [.upToDate])
    }

    @Test func aDryRunMakesNothing() async throws {
        var world = try World()
        try world.publish(try .small(.aurora))
        var request = try request(world)
        request.isDryRun = true
        let results = try await service(request).stage()
        #expect(results.first?.packs.map(\.outcome) == [.planned])
        #expect(try Directory.open(world.directory.path).status("container") == nil)
        request.assumptions.freeSpace = .zero
        let full = try await service(request).stage()
        #expect(full.first?.failures.map(\.kind) == [.noSpace])
        #expect(full.first?.failures.map(\.advice) == [.freeSpace])
        request.assumptions.isInstalled = true
        let installed = try await service(request).stage()
        #expect(installed.first?.packs.map(\.outcome) == [.present])
    }

    /// The daemon accepts at most 8,192 bytes, and 30 combining characters in a row.
    @Test func theReasonOfAFailureIsOneThatTheDaemonTakes() throws {
        let word = "a" + String(repeating: "\u{1D165}", count: 100)
        let failure = StagingFailure.invalidRequest(String(repeating: word, count: 100))
        let reason = try #require(StagingEnd(of: [failure])?.failure?.reason)
        #expect(1000...8192 ~= reason.utf8.count)
        #expect(!CombiningSequence.exceedsLimit(in: reason))
    }

    @Test func historyHasCodesAndCountsFailures() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        world.server.answer(pack.path, with: .status(503))
        for _ in 0..<2 { _ = try await service(try request(world)).stage() }
        let failed = try history(world)
        #expect(failed.pending == [.install])
        let entry = try #require(failed.packs.first)
        #expect(entry.outcome == .failed && entry.reason == .missing && entry.failures == 2)
        #expect(
            entry.rule == .policy(name: "essential", event: .install, isEssentialOnly: false)
        )
        // A repetition of the failed run does not count as another failed run.
        var repetition = try request(world)
        repetition.isRepetition = true
        _ = try await service(repetition).stage()
        #expect(try history(world).packs.map(\.failures) == [2])
        let problem = try #require(entry.problem)
        #expect(problem.kind == StagingFailure.Kind.transferFailed.rawValue)
        #expect(problem.advice == StagingAdvice.runAgainLater.rawValue)
        #expect(problem.message.hasPrefix("pack 'aurora': 'http://"))
        try world.publish(pack)
        repetition.packs = try .named([.aurora])
        _ = try await service(repetition).stage()
        let staged = try history(world)
        #expect(staged.packs.map(\.outcome) == [.staged])
        #expect(staged.packs.map(\.rule) == [.name])
        #expect(staged.packs.map(\.failures) == [0])
    }

    @Test func aRunForOnePackForgetsNothingOfOthers() async throws {
        var world = try World()
        let (aurora, oceans) = (
            try SamplePack.small(.aurora), try SamplePack.small(PackID("oceans"))
        )
        try world.publish(aurora, oceans)
        world.server.answer(oceans.path, with: .status(404))
        _ = try await service(try request(world)).stage()
        _ = try await service(try request(world, .named([.aurora]))).stage()
        let entries = try history(world).packs
        #expect(entries.map(\.id.text).sorted() == ["aurora", "oceans"])
        #expect(entries.first { $0.id.text == "oceans" }?.problem != nil)
        let results = try await service(try request(world)).fetchManifests()
        #expect(results.map(\.revision) == [1] && results.allSatisfy(\.packs.isEmpty))
        #expect(try history(world).packs == entries)
    }

    @Test func aCodeOfALaterVersionLosesOneEntry() async throws {
        var world = try World()
        try world.publish(try .small(.aurora), try .small(PackID("oceans")))
        _ = try await service(try request(world)).stage()
        let folder = try Directory.open(world.container.appending("history"))
        let name: FilePath.Component = "net.example.wallpaper.json"
        let path = folder.path.appending(name)
        let bytes = try File.open(reading: path).readAll(limit: 1 << 20)
        let text = String(decoding: bytes, as: UTF8.self)
        let changed = text.replacing(#/"outcome" ?: ?"staged"/#, maxReplacements: 1) { _ in
            #""outcome":"beamed""#
        }
        #expect(changed != text)
        let registered = changed.replacing("{", with: #"{"registration":"/a","#, maxReplacements: 1)
        try folder.write(Array(registered.utf8), to: name, durably: false)
        let read = try history(world)
        #expect(read.packs.count == 1)
        #expect(read.isRegistered)
        #expect(read.lastRun?.request == .install)
    }

    @Test func theDomainsOfTheCallerHold() async throws {
        var world = try World()
        try world.publish(try .small(.aurora))
        var request = try request(world)
        request.options.allowedDomains = ["cdn.example.org"]
        let refused = try await service(request).stage()
        #expect(refused.first?.failures.map(\.kind) == [.transferRefused])
        var registration = try registration(world)
        var restrictions = Registration.Restrictions()
        restrictions.downloadDomainAllowList = ["127.0.0.1", "*.example.org"]
        registration.restrictions = restrictions
        request.target.registration = registration
        #expect(try await service(request).stage().first?.failures.isEmpty == false)
        #expect(try world.staged(.aurora) == nil)
    }

    @Test func aManifestOfAnotherApplicationIsRefused() async throws {
        var world = try World()
        try world.publish(try .small(.aurora))
        var request = try request(world)
        request.target.application = try ApplicationID("net.example.other")
        let service = service(request)
        await #expect {
            _ = try await service.stage()
        } throws: { ($0 as? StagingFailure)?.kind == .manifestRefused }
    }

    @Test func aBlockedListenerOfUpdatesDelaysNoPublishing() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        let isPublished = Atomic<Bool>(false)
        let sawPublished = Atomic<Bool>(false)
        let container = world.container
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let service = StagingService(try request(world), logger: logger) { update in
            guard case .pack = update, !isPublished.load(ordering: .relaxed) else { return }
            // Blocks like a terminal that is stopped: until the pack is published, or for far too long.
            for _ in 0..<30_000 {
                if FileStatus.exists(container.appending("packs/aurora")) {
                    sawPublished.store(true, ordering: .relaxed)
                    break
                }
                usleep(10_000)
            }
            isPublished.store(true, ordering: .relaxed)
        }
        _ = try await service.stage()
        let isSeen = sawPublished.load(ordering: .relaxed)
        #expect(isSeen)
    }

    @Test func theQuotaOfARegistrationHolds() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        var registration = try registration(world)
        registration.quota = ByteCount(pack.pack.installedSize.rawValue - 1)
        let request = try request(world, .named([.aurora]), registration: registration)
        let results = try await service(request).stage()
        #expect(results.first?.failures.map(\.kind) == [.noSpace])
        #expect(results.first?.failures.map(\.advice) == [.raiseQuota])
        #expect(results.first?.packs.map(\.reason) == [.exceedsQuota])
        #expect(world.server.counts(for: pack.path).requests == 0)
    }

    @Test func aQuotaThatCannotBeKeptCostsNoPack() async throws {
        var world = try World()
        let rare = try PackID("rare")
        try world.publish(.small(.aurora), .small(rare, policy: .onDemand))
        let named = try StagingRequest.Packs.named([.aurora, rare])
        _ = try await service(try request(world, named)).stage()
        var registration = try registration(world)
        registration.quota = ByteCount(1)
        let results = try await service(try request(world, registration: registration)).stage()
        #expect(results.first?.evicted == [])
        #expect(results.first?.packs.map(\.outcome) == [.present, .present])
        #expect(try world.names(in: "packs") == ["aurora", "rare"])
    }

    /// Two applications offer two packs of one archive in opposite orders.
    @Test func runsWithOppositeOrdersDoNotWaitForEachOther() async throws {
        var world = try World()
        let first = try SamplePack.small(try PackID("one"))
        let second = SamplePack(try PackID("two"), archive: first.archive, first.files)
        try world.publish(first, second)
        let application = try ApplicationID("net.example.zebra")
        let packs = [second.pack, first.pack]
        let manifest = Manifest(application: application, revision: 1, packs: packs)
        world.server.answer("/other.json", with: .content(manifest.json()))
        var other = try request(world)
        other.target.manifests = [world.server.url("/other.json")]
        let requests = [try request(world), other]
        let container = try Container.make(world.container)
        for _ in 1...4 {
            var held = try container.attemptLock(first.pack.id)
            try #require(held != nil)
            try await withThrowingTaskGroup(of: Void.self) { group in
                for request in requests {
                    let updates = Updates()
                    let service = service(request, updates)
                    group.addTask { _ = try await service.stage() }
                    try await poll { updates.all.contains("waiting one") }
                }
                held = nil
                group.addTask {
                    try await Task.sleep(for: .seconds(300))
                    throw NeverHappened()
                }
                for _ in requests { try await group.next() }
                group.cancelAll()
            }
            for id in packs.map(\.id) {
                let lock = try #require(try container.attemptLock(id))
                #expect(try container.remove(lock).generations == 1)
            }
        }
    }

    @Test func restrictionsBindEventsAndNoPacksByName() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        var registration = try registration(world)
        var restrictions = Registration.Restrictions()
        restrictions.essentialDownloadAllowance = ByteCount(1)
        registration.restrictions = restrictions
        let event = try request(world, registration: registration)
        let refused = try await service(event).stage()
        #expect(refused.first?.failures.map(\.kind) == [.restricted])
        #expect(refused.first?.failures.map(\.advice) == [.startApplication])
        let named = try request(world, .named([.aurora]), registration: registration)
        #expect(try await service(named).stage().first?.packs.map(\.outcome) == [.staged])
    }

    @Test func aStoredManifestDoesNotDenyAPackWhileItsServerFails() async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        _ = try await service(try request(world)).stage()
        world.server.answer("/manifest.json", with: .status(503))
        let later = try request(world, .named([PackID("borealis")]))
        do throws(StagingFailure) {
            _ = try await service(later).stage()
            Issue.record("a pack was found that no manifest has")
        } catch {
            #expect(error.kind == .manifestUnavailable && error.retryAdvice != .never)
            #expect(error.description.hasPrefix("pack 'borealis': the manifest is not available: "))
        }
        let ending = try await world.run("load", "borealis", "--attempts", "1", "--json")
        #expect(ending.status == 10, "\(ending)")
    }

    @Test func failuresThatEndTheRunAreThrown() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        func failure(_ request: StagingRequest) async -> StagingFailure? {
            do throws(StagingFailure) {
                _ = try await service(request).stage()
                return nil
            } catch {
                return error
            }
        }
        let borealis = try PackID("borealis")
        let unknown = await failure(try request(world, .named([borealis])))
        #expect(unknown == .engine(.unknownPack(borealis), about: nil))
        #expect(unknown?.kind == .unknownPack && unknown?.retryAdvice == .never)
        var offline = try request(world)
        offline.isOffline = true
        offline.target.container = world.directory.path.appending("other")
        #expect(await failure(offline)?.kind == .offline)
        var nowhere = try request(world)
        nowhere.target.manifests = []
        nowhere.target.container = world.directory.path.appending("other")
        #expect(await failure(nowhere) == .noManifest)
        world.server.answer("/manifest.json", with: .status(404))
        var gone = try request(world)
        gone.target.container = world.directory.path.appending("other")
        let missing = await failure(gone)
        #expect(missing?.kind == .manifestUnavailable && missing?.advice == .checkManifestURL)
        #expect(missing?.requestedManifest == .manifest(url: world.manifestURL))
        #expect(
            await failure(
                {
                    var request = gone
                    request.target.container = world.container
                    return request
                }()
            ) == nil,
            "the stored manifest is used"
        )
    }

    @Test func anApplicationWithoutARegistrationIsAnError() throws {
        let folders = try TemporaryDirectory.required().path
        let id = try ApplicationID("net.example.unknown")
        #expect {
            _ = try StagingTarget(
                registered: id,
                environment: ["XDG_CONFIG_HOME": folders.string]
            )
        } throws: { error in
            guard let failure = error as? StagingFailure, case .notRegistered = failure else {
                return false
            }
            return failure.advice == .installApplication && "\(failure)".contains("unknown")
        }
    }
}

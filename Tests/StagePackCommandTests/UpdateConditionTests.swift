import FoundationEssentials
import Logging
import StageContainer
import StageEngine
import StageModel
import StageSystem
import StageTesting
import StageTransfer
import StagingService
import Synchronization
import SystemPackage
import Testing

/// Conditions of network and power for periodic runs without a daemon.
@Suite(.server, .directory, .mockBus, .timeLimit(.minutes(5)))
struct UpdateConditionTests {
    private let bus: MockBus

    init() throws {
        bus = try .required()
        try bus.startWithoutRestrictions()
    }

    /// The state of network and power, and the conditions of the registration.
    struct Case: Sendable, CustomTestStringConvertible {
        var isMetered = false
        var isOnBattery = false
        /// NetworkManager's `NMConnectivityState`.
        var connectivity: UInt32 = 4
        var conditions = UpdateConditions()
        /// The reasons for which the pack that is not essential waits.
        var reasons: [String] = []

        var testDescription: String {
            "metered: \(isMetered), battery: \(isOnBattery), connectivity: \(connectivity), \(conditions)"
        }
    }

    static let cases = [
        Case(),
        Case(isMetered: true, reasons: ["metered"]),
        Case(isOnBattery: true, reasons: ["onBattery"]),
        Case(connectivity: 1, reasons: ["offline"]),
        Case(connectivity: 2, reasons: ["portal"]),
        Case(connectivity: 3),
        Case(isMetered: true, isOnBattery: true, reasons: ["metered", "onBattery"]),
        Case(
            isMetered: true,
            isOnBattery: true,
            conditions: UpdateConditions(allowsExpensiveNetworkAccess: true),
            reasons: ["onBattery"]
        ),
        Case(
            isMetered: true,
            isOnBattery: true,
            conditions: UpdateConditions(requiresExternalPower: false),
            reasons: ["metered"]
        ),
        Case(
            isMetered: true,
            isOnBattery: true,
            conditions: UpdateConditions(
                requiresExternalPower: false,
                allowsExpensiveNetworkAccess: true,
                allowsConstrainedNetworkAccess: true
            )
        ),
    ]

    private func run(
        _ world: World,
        _ request: ContentRequest,
        _ conditions: UpdateConditions,
        settings: CommandSettings = CommandSettings(),
        quota: ByteCount? = nil,
        after change: LateChange? = nil
    ) async throws -> [String: PackResult] {
        var target = StagingTarget(manifests: [world.manifestURL], environment: [:])
        target.container = world.container
        var registration = Registration(
            application: try ApplicationID("net.example.wallpaper"),
            version: "1.0",
            group: try ApplicationGroupID("net.example"),
            manifestURLs: [world.manifestURL],
            trust: .transport
        )
        registration.updateConditions = conditions
        registration.quota = quota
        target.registration = registration
        var options = StagerOptions { Int64(Date().timeIntervalSince1970) }
        options.unpacking = .process(
            try Program.path,
            arguments: ["stagepack", "unpack-service"]
        )
        var staging = StagingRequest(
            .event(request, essentialOnly: false),
            of: target,
            options: options
        )
        staging.usesDaemon = false
        staging.settings = settings
        staging.busAddress = bus.address
        var logger = Logger(label: "test") { label in
            LineLogHandler(label: label, isForJournal: false) { line, _ in
                change?.makeOnce(after: line)
            }
        }
        logger.logLevel = .debug
        let results = try await StagingService(staging, logger: logger) { _ in }.stage()
        return Dictionary(uniqueKeysWithValues: results[0].packs.map { ($0.id.text, $0) })
    }

    @Test(arguments: cases)
    func aPeriodicRunWaitsForTheConditionsOfTheRegistration(_ example: Case) async throws {
        var world = try World()
        let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]
        let packs: [SamplePack] = [
            try .small(try PackID("title"), policy: .essential(events)),
            try .small(try PackID("voices"), policy: .prefetch(events)),
        ]
        try world.publish(packs)
        try bus.set("Metered", of: .networkManager, to: .number(example.isMetered ? 1 : 2))
        try bus.set("OnBattery", of: .power, to: .flag(example.isOnBattery))
        try bus.set("Connectivity", of: .networkManager, to: .number(example.connectivity))

        let periodic = try await run(world, .periodic, example.conditions)
        #expect(periodic["title"]?.outcome == .staged)
        let voices = try #require(periodic["voices"])
        if example.reasons.isEmpty {
            #expect(voices.outcome == .staged)
        } else {
            #expect(voices.outcome == .waiting)
            #expect(voices.reason == .held(example.reasons))
        }
        // Runs for a person or a hook do not wait for network and power.
        let install = try await run(world, .install, example.conditions)
        let isThere = install["voices"].map { [.staged, .present].contains($0.outcome) }
        #expect(isThere == true)
    }

    /// The first plan has space for both packs, and the plan of the essential pack alone has none.
    @Test func anEssentialPackThatTheLaterPlanRefusesHasFailed() async throws {
        var world = try World()
        let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]
        let title = try SamplePack.small(try PackID("title"), policy: .essential(events))
        let voices = try SamplePack.small(try PackID("voices"), policy: .prefetch(events))
        try world.publish(title, voices)
        try bus.set("Metered", of: .networkManager, to: .number(1))
        let quota =
            StoredGeneration.size(of: title.pack) + StoredGeneration.size(of: voices.pack)
        let container = world.container
        let change = LateChange {
            // A generation without a record counts as one block.
            for number in 0...quota.rawValue / 4096 {
                try Self.addGeneration(of: "other\(number)", to: container)
            }
        }
        let results = try await run(
            world,
            .periodic,
            UpdateConditions(),
            quota: quota,
            after: change
        )
        try change.check()
        #expect(results["title"]?.outcome == .failed)
        #expect(results["title"]?.reason == .exceedsQuota)
        #expect(results["title"]?.failure?.kind == .noSpace)
        #expect(results["voices"]?.outcome == .waiting)
        #expect(results["voices"]?.reason == .held(["metered"]))
    }

    @Test func anEssentialPackThatAnotherProcessStagesMeanwhileDoesNotWait() async throws {
        var world = try World()
        let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]
        let link = world.container.appending("packs/title").string
        var targets: [String] = []
        for version in 1...2 {
            try world.publish(
                try .small(try PackID("title"), version: version, policy: .essential(events)),
                try .small(try PackID("voices"), version: version, policy: .prefetch(events))
            )
            let staged = try await run(world, .update, UpdateConditions())
            #expect(staged["title"]?.outcome == .staged)
            targets.append(try FileManager.default.destinationOfSymbolicLink(atPath: link))
        }
        try world.publish(
            try .small(try PackID("title"), version: 2, policy: .essential(events)),
            try .small(try PackID("voices"), version: 3, policy: .prefetch(events))
        )
        try bus.set("Metered", of: .networkManager, to: .number(1))
        // Version 1 is staged again until the run has made its first plan.
        let generation = world.container.appending("packs/\(targets[1])")
            .removingLastComponent().string
        let aside = world.directory.path.appending("aside").string
        try FileManager.default.moveItem(atPath: generation, toPath: aside)
        try Self.replaceLink(link, with: targets[0])
        let change = LateChange { [targets] in
            try FileManager.default.moveItem(atPath: aside, toPath: generation)
            try Self.replaceLink(link, with: targets[1])
        }
        let results = try await run(world, .periodic, UpdateConditions(), after: change)
        try change.check()
        #expect(results["title"]?.outcome == .present)
        #expect(results["title"]?.reason == .stagedByOther)
        #expect(results["voices"]?.outcome == .waiting)
    }

    /// The run is cancelled when it has its plan, which evicts a pack.
    @Test func anInterruptedRunEvictsNothing() async throws {
        var world = try World()
        let prefetch = DownloadPolicy.prefetch([.firstInstallation, .subsequentUpdate])
        var old = try pack("old", version: 1, policy: prefetch, byteCount: 60_000)
        try world.publish(
            old,
            try pack("voices", version: 1, policy: prefetch, byteCount: 1000)
        )
        let staged = try await run(world, .install, UpdateConditions())
        #expect(staged["old"]?.outcome == .staged)
        #expect(staged["voices"]?.outcome == .staged)
        old.pack.policy = .onDemand
        let voices = try pack("voices", version: 2, policy: prefetch, byteCount: 60_000)
        try world.publish(old, voices)
        let both = StoredGeneration.size(of: old.pack) + StoredGeneration.size(of: voices.pack)
        let quota = both - ByteCount(1)
        let cancellation = Cancellation()
        let change = LateChange { cancellation.perform() }
        let task = Task { [world] in
            try await poll("the test does not know the task") { cancellation.isKnown }
            return try await run(
                world,
                .periodic,
                UpdateConditions(),
                quota: quota,
                after: change
            )
        }
        cancellation.set { task.cancel() }
        let results = try await task.value
        try change.check()
        #expect(results["voices"]?.failure?.kind == .interrupted)
        #expect(results["old"]?.outcome == .present)
        #expect(FileStatus.exists(world.container.appending("packs/old")))
        // Not interrupted, the same run evicts the pack.
        let later = try await run(world, .periodic, UpdateConditions(), quota: quota)
        #expect(later["voices"]?.outcome == .staged)
        #expect(later["old"]?.outcome == .evicted)
    }

    private func pack(
        _ name: String,
        version: Int,
        policy: DownloadPolicy,
        byteCount: Int
    ) throws -> SamplePack {
        let content = noise(byteCount, seed: UInt64(version))
        return try SamplePack(
            try PackID(name),
            version: version,
            policy: policy,
            [.init("content", content: content)]
        )
    }

    /// Adds a current generation of a pack that no manifest offers, which is therefore never evicted.
    private static func addGeneration(of pack: String, to container: FilePath) throws {
        let folder = try Directory.make(container.appending("generations/\(pack)/1"))
        try folder.write([0], to: "lease", durably: false)
        _ = try Directory.make(folder.path.appending("content"))
        try FileManager.default.createSymbolicLink(
            atPath: container.appending("packs/\(pack)").string,
            withDestinationPath: "../generations/\(pack)/1/content"
        )
    }

    private static func replaceLink(_ link: String, with target: String) throws {
        try FileManager.default.removeItem(atPath: link)
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: target)
    }

    @Test func conditionsOfTheMachineOverrideThoseOfTheRegistration() async throws {
        var world = try World()
        let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]
        try world.publish(try .small(try PackID("voices"), policy: .prefetch(events)))
        try bus.set("Metered", of: .networkManager, to: .number(1))
        var settings = CommandSettings()
        settings.updateConditions = UpdateConditions()
        let anyNetwork = UpdateConditions(allowsExpensiveNetworkAccess: true)
        let held = try await run(world, .periodic, anyNetwork, settings: settings)
        #expect(held["voices"]?.reason == .held(["metered"]))
        settings.updateConditions = anyNetwork
        let staged = try await run(world, .periodic, UpdateConditions(), settings: settings)
        #expect(staged["voices"]?.outcome == .staged)
    }
}

/// A change of the container that is made when the run reads the state of network and power, after its first plan.
private final class LateChange: Sendable {
    private let body: @Sendable () throws -> Void
    private let result = Mutex<Result<Void, any Error>?>(nil)

    init(_ body: @escaping @Sendable () throws -> Void) { self.body = body }

    /// Makes the change if this line of the log says that the run has connected to the message bus.
    func makeOnce(after line: String) {
        guard line.contains("connected"), line.contains("bus.address") else { return }
        result.withLock { result in
            if result == nil { result = Result { try body() } }
        }
    }

    /// Checks that the change was made.
    func check() throws {
        let made = result.withLock { $0 }
        try #require(made, "the run has not connected to the message bus").get()
    }
}

/// The cancellation of a task, which is known once the task exists.
private final class Cancellation: Sendable {
    private let action = Mutex<(@Sendable () -> Void)?>(nil)

    var isKnown: Bool { action.withLock { $0 != nil } }

    func set(_ cancel: @escaping @Sendable () -> Void) { action.withLock { $0 = cancel } }

    func perform() {
        let cancel = action.withLock { $0 }
        cancel?()
    }
}

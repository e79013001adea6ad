import StageContainer
import StageModel
import StageSystem
import StageTesting
import StageTrust
import StagingService
import SystemPackage
import Testing

/// The attacks in the specification of The Update Framework (section 1.5.2), on archives and indexed packs, for each client.
@Suite(.server, .directory, .timeLimit(.minutes(5)))
struct AttackMatrixTests {
    /// An attack that ends with a refusal.
    enum Attack: CaseIterable, Sendable {
        case arbitraryInstallation
        case endlessData
        case extraneousDependencies
        case indefiniteFreeze
        case mixAndMatch
        case rollback
        case vulnerableKeys

        /// The rule that the refusal names.
        var rule: String {
            switch self {
            case .arbitraryInstallation:
                "version 3 of the targets metadata is not signed as version 1 of 'root' demands"
            case .endlessData: "expected at most"
            case .extraneousDependencies:
                "'manifest.json' is not what version 3 of the targets metadata describes"
            case .indefiniteFreeze: "version 3 of the timestamp metadata expired at"
            case .mixAndMatch:
                "'snapshot.json' is not what version 3 of the timestamp metadata describes"
            case .rollback: "the timestamp metadata goes back from version 2 to version 1"
            case .vulnerableKeys: "is not signed as version 2 of 'root' demands"
            }
        }

        /// Serves the attacker's files, after version 1 was staged.
        func perform(in world: inout AttackWorld) async throws {
            switch self {
            case .arbitraryInstallation:
                world.signed.repository.targets["targets"]?.signers = [try SigningKey()]
                try await world.publish(version: 2)
            case .endlessData:
                try await world.publish(version: 2)
                var endless = Answer.content(Array(repeating: 0x20, count: 1 << 16))
                endless.isEndless = true
                world.server.answer("/metadata/timestamp.json", with: endless)
            case .extraneousDependencies:
                try await world.publish(version: 2)
                let extra = try SamplePack.small(try PackID("extra"))
                let forged = try await world.manifest(version: 3, with: extra)
                world.server.answer(world.signed.manifestPath, with: .content(forged))
            case .indefiniteFreeze:
                world.signed.repository.timestamp.expiry = SignedWorld.now - .days(1)
                try await world.publish(version: 2)
            case .mixAndMatch:
                let old = try #require(world.signed.repository.files["2.snapshot.json"])
                try await world.publish(version: 2)
                world.server.answer("/metadata/3.snapshot.json", with: .content(old))
            case .rollback:
                let current = world.signed.repository.timestamp
                world.signed.repository.timestamp.version = 0
                try world.signed.repository.publish([.timestamp])
                world.signed.repository.timestamp = current
                world.signed.serve()
            case .vulnerableKeys:
                let stolen = world.signed.repository.targets["targets"]?.keys
                world.signed.repository.targets["targets"]?.keys = [try SigningKey()]
                try world.signed.repository.publish([.root])
                world.signed.repository.targets["targets"]?.signers = stolen
                try await world.publish(version: 2)
            }
        }
    }

    static let targets = AttackWorld.Kind.allCases.flatMap { kind in
        AttackWorld.Client.allCases.map { (kind, $0) }
    }

    @Test(arguments: Attack.allCases, targets)
    func nothingIsStaged(
        attack: Attack,
        target: (kind: AttackWorld.Kind, client: AttackWorld.Client)
    ) async throws {
        var world = try await AttackWorld(target.kind)
        try await attack.perform(in: &world)
        let refusal = try #require(try await world.stage(by: target.client))
        #expect(refusal.contains(attack.rule), "\(refusal)")
        #expect(try world.signed.installed.staged() == [world.pack: 1])
        #expect(!world.server.requests.contains { $0.target.contains("extra") })
        if attack == .endlessData {
            #expect(world.server.counts(for: "/metadata/timestamp.json").bytes < 64 << 20)
        }
    }

    @Test(arguments: targets)
    func fastForwardEndsWithNewKeys(
        kind: AttackWorld.Kind,
        client: AttackWorld.Client
    ) async throws {
        var world = try await AttackWorld(kind)
        let (timestamp, snapshot) = (
            world.signed.repository.timestamp, world.signed.repository.snapshot
        )
        world.signed.repository.timestamp.version = 1 << 40
        world.signed.repository.snapshot.version = 1 << 40
        try world.signed.repository.publish([.snapshot, .timestamp])
        world.signed.serve()
        // The client accepts this version first.
        #expect(try await world.stage(by: .command) == nil)
        world.signed.repository.timestamp = timestamp
        world.signed.repository.snapshot = snapshot
        try await world.publish(version: 2)
        let refusal = try #require(try await world.stage(by: client))
        #expect(refusal.contains("goes back from version"), "\(refusal)")
        #expect(try world.staged == 1)
        world.signed.repository.timestamp.keys = [try SigningKey()]
        world.signed.repository.snapshot.keys = [try SigningKey()]
        try world.signed.repository.publish([.root])
        try await world.publish(version: 2)
        #expect(try await world.stage(by: client) == nil)
        #expect(try world.staged == 2)
    }

    @Test(arguments: targets)
    func aMaliciousMirrorGivesWay(
        kind: AttackWorld.Kind,
        client: AttackWorld.Client
    ) async throws {
        var world = try await AttackWorld(kind)
        try world.signed.register(at: ["/hostile", ""])
        let good = world.signed.repository
        world.signed.repository.targets["targets"]?.signers = [try SigningKey()]
        try await world.publish(version: 9, serving: false)
        world.signed.serve(in: "/hostile")
        world.signed.repository = good
        try await world.publish(version: 2)
        #expect(try await world.stage(by: client) == nil)
        #expect(try world.staged == 2)
        #expect(world.server.counts(for: "/hostile/metadata/timestamp.json").requests == 1)
    }

    /// The last verified version is used instead.
    ///
    /// The rule for stalled transfers is that of the engine, for all clients: a tenth of a short document in a minute; the library's
    /// client uses a second here. ``SlowRetrievalTests`` tests workers of the daemon, which report the failure after four attempts.
    @Test(
        .waiting,
        arguments: AttackWorld.Kind.allCases,
        [.command, .library] as [AttackWorld.Client]
    )
    func slowRetrievalIsGivenUp(
        kind: AttackWorld.Kind,
        client: AttackWorld.Client
    ) async throws {
        var world = try await AttackWorld(kind)
        try await world.publish(version: 2)
        try world.dripTimestamp()
        if client == .library {
            let problem = try await world.results().first?.manifestProblem
            #expect(
                problem.map { "\($0)" }?.contains("stalled") == true,
                "\(String(describing: problem))"
            )
        } else {
            let ending = try await world.signed.run("fetch", world.pack, "--attempts", "1")
            #expect(ending.status == 10, "\(ending)")
            #expect(ending.error.contains("stalled"), "\(ending)")
            #expect(ending.error.contains("using revision 1, verified"), "\(ending)")
        }
        #expect(try world.staged == 1)
    }

    /// Versions only increase, even with a wrong clock; if the clock is ahead, the client refuses, and the message contains the time.
    @Test(arguments: AttackWorld.Kind.allCases)
    func aClockAYearOffIsNoWayIn(kind: AttackWorld.Kind) async throws {
        var world = try await AttackWorld(kind)
        let old = try #require(world.signed.repository.files["timestamp.json"])
        try await world.publish(version: 2)
        let year: Int64 = 365 * 86400
        let machine = world.clock
        world.clock = { machine() + year }
        let refusal = try #require(try await world.stage(by: .library))
        #expect(refusal.contains("expired at"), "\(refusal)")
        #expect(refusal.contains("the time is"), "\(refusal)")
        #expect(try world.staged == 1)
        world.clock = { machine() - year }
        #expect(try await world.stage(by: .library) == nil)
        #expect(try world.staged == 2)
        world.server.answer("/metadata/timestamp.json", with: .content(old))
        let rollback = try #require(try await world.stage(by: .library))
        #expect(rollback.contains("goes back from version 3 to version 2"), "\(rollback)")
        #expect(try world.staged == 2)
    }
}

/// A server that sends metadata a byte at a time to a worker of the daemon.
///
/// The worker tries four times, a minute each, so this suite has a time limit of its own.
@Suite(.waiting, .server, .directory, .timeLimit(.minutes(20)))
struct SlowRetrievalTests {
    /// The pack is staged from the last verified version, so the task ends; the history records the stalls.
    @Test(arguments: AttackWorld.Kind.allCases)
    func aWorkerGivesSlowMetadataUp(kind: AttackWorld.Kind) async throws {
        var world = try await AttackWorld(kind)
        try await world.publish(version: 2)
        try world.dripTimestamp()
        let timestamp = "/metadata/timestamp.json"
        let earlier = world.server.counts(for: timestamp).requests
        #expect(try await world.stageByWorker(within: .seconds(900)) == nil)
        let decision = try await world.signed.run("why", world.pack)
        #expect(decision.output.contains("stalled"), "\(decision)")
        #expect(try world.staged == 1)
        #expect(world.server.counts(for: timestamp).requests == earlier + 4)
        world.signed.serve()
        #expect(try await world.stageByWorker() == nil)
        #expect(try world.staged == 2)
    }
}

import Foundation
import Glibc
import StageControl
import StageModel
import StageTesting
import SystemPackage
import Testing

/// Commands, workers and daemons that are killed at random moments while they stage.
///
/// `STAGEPACK_TEST_KILLS` is the number of kills for each kind of pack, `STAGEPACK_TEST_SEED` the seed.
@Suite(.apart, .server, .directory, .timeLimit(.minutes(60)))
struct KilledStagingTests {
    /// The process that is killed.
    enum Victim: CaseIterable, Sendable {
        case command
        case worker
        case daemon
        /// The daemon and its workers together, as in a failure of the machine.
        case machine
    }

    /// The bytes that may be sent twice for each kill, because they were in transit.
    private let lost = 3 << 20

    private static func number(_ name: String) -> Int? {
        ProcessInfo.processInfo.environment[name].flatMap { Int($0) }
    }

    @Test(arguments: StagingWorld.Kind.allCases)
    func processesThatAreKilledAgainAndAgainStageOnce(_ kind: StagingWorld.Kind) async throws {
        let (count, seed) = (
            Self.number("STAGEPACK_TEST_KILLS") ?? 20, Self.number("STAGEPACK_TEST_SEED") ?? 23
        )
        var random = SeededGenerator(seed: UInt64(seed))
        var world = try await StagingWorld(kind, sending: .slowly(2 << 20))
        try world.speedUp()
        #expect(try await world.fetch().status == 0)
        var (kills, version, size) = (0, 1, world.size)
        while kills < count {
            version += 1
            try world.make(version: version)
            try await world.publish(version: version)
            let server = world.installed.world.server
            // The bytes of killed processes count for the update that they belong to.
            try await server.settle()
            let before = world.bytesSent
            let more = try await Self.kill(
                in: world,
                updating: version,
                upTo: count - kills,
                &random
            )
            kills += more
            size += world.size
            try await server.settle()
            let sent = world.bytesSent - before
            #expect(sent <= world.size + more * lost, "\(sent) bytes, \(more) kills")
        }
        print(
            "\(kind): \(kills) kills in \(version - 1) updates, \(world.bytesSent) bytes of \(size)"
        )
    }

    /// Kills processes until a version is staged or there were enough kills; returns their number.
    private static func kill(
        in world: StagingWorld,
        updating version: Int,
        upTo count: Int,
        _ random: inout SeededGenerator
    ) async throws -> Int {
        var kills = 0
        while try world.installed.staged() == [world.pack: version - 1], kills < min(count, 40) {
            let moment = Duration.milliseconds(Int.random(in: 50..<700, using: &random))
            let victim = try #require(Victim.allCases.randomElement(using: &random))
            try await kill(victim, in: world, after: moment)
            kills += 1
            // The staged version is complete, and one of the two.
            let staged = try world.installed.staged()[world.pack] ?? 0
            #expect([version - 1, version].contains(staged))
            let verified = try await world.installed.run("verify", "--app", "net.example.wallpaper")
            #expect(verified.status == 0, "after kill \(kills), \(victim): \(verified)")
        }
        try world.speedUp()
        try await withDaemon(world) { client in
            let ending = try await world.fetch()
            #expect(ending.status == 0, "\(ending)")
            // Each request has ended.
            try await poll("a task stays") { try await client.sessions().isEmpty }
            let tasks = try await client.tasks()
            #expect(tasks.isEmpty)
        }
        #expect(try world.installed.staged() == [world.pack: version])
        // Each version was published once.
        let generations = try world.generations()
        let versions = Set(generations.compactMap { $0.split(separator: "-").first })
        #expect(versions.count == generations.count, "\(generations)")
        let litter = try world.litter()
        #expect(litter == [])
        return kills
    }

    /// Runs a daemon, and either a command or a worker for an earlier command's order, and kills one of them.
    private static func kill(
        _ victim: Victim,
        in world: StagingWorld,
        after moment: Duration
    ) async throws {
        let ending = [.daemon, .machine].contains(victim) ? SIGKILL : SIGTERM
        let sparesWorkers = victim == .daemon
        try await withDaemon(world, ending: ending, sparesWorkers: sparesWorkers) { client in
            guard victim == .command else {
                if try await client.tasks().isEmpty { _ = try await world.ask(client) }
                try await Task.sleep(for: moment)
                if victim == .worker {
                    try await poll("there is no worker") {
                        let tasks = try await client.tasks()
                        return try !world.workers().isEmpty || tasks.isEmpty
                    }
                    for worker in try world.workers() { Glibc.kill(worker, SIGKILL) }
                }
                return
            }
            _ = try await world.fetch { running in
                try await Task.sleep(for: moment)
                running.send(SIGKILL)
            }
        }
    }
}

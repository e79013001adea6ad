import FoundationEssentials
import Glibc
import Logging
import StageControl
import StageEngine
import StageOnDemand
import StagePack
import StageSystem
import StageTesting
import StagingService
import SystemPackage
import Testing

/// Fetches that applications cancel while a daemon records them.
@Suite(.apart, .server, .directory, .timeLimit(.minutes(5)))
struct WithdrawnFetchTests {
    /// Returns a fetcher that starts `stagepack` in the environment of an installed application.
    private func command(of installed: Installed) throws -> CommandFetcher {
        let program = installed.world.program
        let variables = program.environment.map { "\($0.key)=\($0.value)" }
        let start = ["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/dev/null"]
        let words = program.wrapper.isEmpty ? [try Program.path.string] : program.wrapper
        let line = (start + variables + words).map { "'\($0)'" }.joined(separator: " ")
        let path = installed.world.directory.path.appending("command")
        try ProgramFile.write("#!/bin/sh\nexec \(line) \"$@\"\n", to: path)
        return CommandFetcher(
            source: .manifest(url: installed.world.manifestURL),
            command: path
        )
    }

    /// Returns a fetcher that stages in this process.
    private func engine(of installed: Installed) throws -> EngineFetcher {
        var options = StagerOptions { Int64(Date().timeIntervalSince1970) }
        // As root, archives are unpacked only in a separate process.
        options.unpacking = .process(
            try Program.path,
            arguments: ["stagepack", "unpack-service"]
        )
        return EngineFetcher(
            target: StagingTarget(
                manifests: [installed.world.manifestURL],
                environment: ["STAGEPACK_SOCKET": installed.socket.string]
            ),
            options: options,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        )
    }

    /// Cancels a fetch, and expects that the daemon does not resume it, and that the next fetch does.
    private func expectWithdrawal(
        from world: StagingWorld,
        by fetcher: any PackFetcher,
        _ gate: Gate
    ) async throws {
        let store = PackStore(containers: [world.installed.world.container], fetcher: fetcher)
        let server = world.installed.world.server
        try await withDaemon(world) { client in
            let fetch = Task { try await store.loadPack("aurora") }
            try await poll("the staging does not run") {
                try await client.tasks().first?.state == .running
            }
            try await poll("no request comes") {
                !server.requests(for: "/packs/aurora-1.tar.zst").isEmpty
            }
            fetch.cancel()
            await #expect(throws: PackStoreError.cancelled) { try await fetch.value }
            try await poll("the session stays") { try await client.sessions().isEmpty }
            #expect(server.requests(for: "/packs/aurora-1.tar.zst").count == 1)
            #expect(try store.localURL(for: "aurora") == nil)
            // Nothing holds the lock of the pack.
            try world.speedUp()
            _ = try await store.loadPack("aurora")
            gate.open()
        }
    }

    @Test func aCancelledFetchOfACommandEndsInTheDaemon() async throws {
        let gate = Gate()
        let world = try await StagingWorld(.archive, sending: .held(gate))
        let fetcher = try command(of: world.installed)
        try await expectWithdrawal(from: world, by: fetcher, gate)
    }

    @Test func aFetchWhoseTimeIsOverIsLeftToTheDaemon() async throws {
        let gate = Gate()
        let world = try await StagingWorld(.archive, sending: .held(gate))
        let fetcher = try command(of: world.installed)
        let store = PackStore(containers: [world.installed.world.container], fetcher: fetcher)
        try await withDaemon(world) { client in
            var tasks: [TransferTask] = []
            // On a busy machine, the command may reach the daemon only after a short timeout.
            for seconds in [3, 12, 48] where tasks.isEmpty {
                let timeout = Duration.seconds(seconds)
                let late = PackStoreError.timedOut(try .aurora, after: timeout)
                await #expect(throws: late) {
                    try await store.loadPack("aurora", options: .init(timeout: timeout))
                }
                tasks = try await client.tasks()
            }
            #expect(tasks.count == 1 && tasks.first?.hasEnded == false, "\(tasks)")
            gate.open()
            try await poll("the daemon does not continue it") {
                try await client.sessions().isEmpty
            }
            let staged = try store.localURL(for: "aurora")
            #expect(staged != nil)
        }
    }

    @Test(.otherThanRoot("root accepts no socket from its environment"))
    func aCancelledFetchOfTheEngineEndsInTheDaemon() async throws {
        let gate = Gate()
        let world = try await StagingWorld(.archive, sending: .held(gate))
        try await expectWithdrawal(from: world, by: try engine(of: world.installed), gate)
    }
}

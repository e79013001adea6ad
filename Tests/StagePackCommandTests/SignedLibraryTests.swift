import FoundationEssentials
import Logging
import StageContainer
import StageControl
import StageEngine
import StageModel
import StageOnDemand
import StagePack
import StageSystem
import StageTesting
import StageTransfer
import StageTrust
import StagingService
import SystemPackage
import Testing
import WallpaperStore

/// The library and workers of the daemon verify the same metadata as commands.
@Suite(.server, .directory)
struct SignedLibraryTests {
    private func store(_ world: SignedWorld) throws -> PackStore {
        var target = StagingTarget(environment: [:])
        target.registration = world.installed.registration
        let root = world.world.directory.path.appending("root.json")
        try world.world.directory.write(world.repository.firstRoot, to: "root.json", durably: false)
        target.registration?.trust = .root(path: root.string)
        var options = StagerOptions { Int64(Date().timeIntervalSince1970) }
        options.transfer.retry.maximumAttempts = 1
        // As root, archives are unpacked only in a separate process.
        options.unpacking = .process(
            try Program.path,
            arguments: ["stagepack", "unpack-service"]
        )
        let fetcher = EngineFetcher(
            target: target,
            options: options,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            usesDaemon: false
        )
        return PackStore(containers: [world.installed.container], fetcher: fetcher)
    }

    @Test func aLibraryLoadsWhatIsSigned() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        let folder = try await store(world).loadPack("aurora")
        let text = try String(contentsOf: folder.appending(path: "readme.txt"), encoding: .utf8)
        #expect(text == "aurora 1\n")
    }

    @Test func aLibraryLoadsNothingElse() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        let forged = try world.world.manifest(of: [try .small(.aurora, version: 9)])
        world.server.answer("/signed" + world.manifestPath, with: .content(forged))
        let store = try store(world)
        await #expect {
            _ = try await store.loadPack("aurora")
        } throws: { error in
            guard case .fetchFailed(_, let failure) = error as? PackStoreError else { return false }
            return failure.kind == .manifestUntrusted
        }
        #expect(try world.installed.staged().isEmpty)
    }

    /// A worker reads the registration itself, and verifies with the root beside it.
    @Test(arguments: [false, true])
    func aWorkerOfTheDaemonVerifies(isForged: Bool) async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        if isForged {
            let forged = try world.world.manifest(of: [try .small(.aurora, version: 9)])
            world.server.answer("/signed" + world.manifestPath, with: .content(forged))
        }
        var installed = world.installed
        try await withDaemon(&installed) {
            (installed: Installed, client: ControlClient) async throws in
            let task = try await client.stage(["aurora"], of: installed)
            try await poll("the staging never ends") {
                let found = try await client.tasks().first { $0.id == task }
                return try found?.lastProblem != nil || !installed.staged().isEmpty
            }
        }
        #expect(try installed.staged() == (isForged ? [:] : ["aurora": 1]))
    }
}

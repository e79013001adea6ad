import FoundationEssentials
import Logging
import StageContainer
import StageControl
import StageEngine
import StageModel
import StageSystem
import StageTesting
import StageTransfer
import StageTrust
import StagingService
import SystemPackage
import Testing

/// An application that is registered with a root of trust, with version 1 of a pack, and its server or an attacker's.
struct AttackWorld {
    /// The form of the pack.
    enum Kind: CaseIterable, Sendable {
        case archive
        case indexed
    }

    /// The program that stages.
    enum Client: CaseIterable, Sendable {
        case command
        case library
        case worker
    }

    let kind: Kind
    var signed: SignedWorld
    private let publisher: IndexedPublisher
    private let id: PackID
    private let program: FilePath
    /// The clock of the library's client; the other clients use the machine's clock.
    var clock: @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) }
    /// `true` if the server sends the timestamp metadata slowly.
    private var isSlow = false

    /// Publishes version 1 and stages it.
    init(_ kind: Kind, expiry: Duration = .days(30)) async throws {
        self.kind = kind
        id = try PackID(kind == .archive ? "aurora" : "levels")
        program = try Program.path
        signed = try await SignedWorld()
        signed.repository = try TestRepository(expiry: SignedWorld.now + expiry)
        signed.repository.listsDigests = true
        // The URLs of an index are relative to the manifest's.
        signed.folder = ""
        publisher = try IndexedPublisher(signed.world)
        try signed.register(at: [""])
        try await publish(version: 1)
        try await #require(stage(by: .command) == nil)
        try #require(staged == 1)
    }

    /// The pack.
    var pack: String { id.text }

    /// The staged version of the pack.
    var staged: Int? { get throws { try signed.installed.staged()[pack] } }

    var server: TestServer { signed.server }

    /// Serves the content of a version, and returns its manifest, with `extra` as a further pack if given.
    mutating func manifest(
        version: Int,
        with extra: SamplePack? = nil
    ) async throws -> [UInt8] {
        let extra = extra.map { [$0] } ?? []
        signed.installed.world.revision = version
        for pack in extra { server.answer(pack.path, with: .content(pack.archive)) }
        switch kind {
        case .archive:
            let pack = try SamplePack.small(.aurora, version: version)
            server.answer(pack.path, with: .content(pack.archive))
            return try signed.world.manifest(of: [pack] + extra)
        case .indexed:
            try publisher.write(["maps/one.map": noise(100_000, seed: UInt64(version))])
            let index = try await publisher.package(version: version)
            var manifest = try Manifest(json: publisher.manifest(of: index, version: version))
            manifest.packs += extra.map(\.pack)
            return manifest.json()
        }
    }

    /// Signs a version and serves it.
    mutating func publish(version: Int, serving: Bool = true) async throws {
        let manifest = try await manifest(version: version)
        signed.repository.contents["targets"] = ["manifest.json": manifest]
        try signed.repository.publish([.targets, .snapshot, .timestamp])
        if serving { signed.serve() }
    }

    /// Makes the server send the timestamp metadata slowly, a byte each three seconds: less than a tenth in a minute.
    mutating func dripTimestamp() throws {
        isSlow = true
        let bytes = try #require(signed.repository.files["timestamp.json"])
        server.answer(
            "/metadata/timestamp.json",
            with: .script { wire in
                wire.send("HTTP/1.1 200 OK\r\nContent-Length: \(bytes.count)\r\n\r\n")
                wire.drip(bytes, pause: 3_000_000)
            }
        )
    }

    /// Stages the pack with a client; returns the reason for a refusal.
    func stage(by client: Client) async throws -> String? {
        switch client {
        case .command:
            let ending = try await signed.run("fetch", pack, "--attempts", "1")
            guard ending.status != 0 else { return nil }
            return "status \(ending.status): \(ending.error)"
        case .library: return try await stageByLibrary()
        case .worker: return try await stageByWorker()
        }
    }

    private func stageByLibrary() async throws -> String? {
        do throws(StagingFailure) {
            for result in try await results() {
                if let failure = result.packs.compactMap(\.failure).first { return "\(failure)" }
            }
            return nil
        } catch {
            return "\(error.kind): \(error)"
        }
    }

    /// Stages the pack in this process.
    func results() async throws(StagingFailure) -> [StagingResult] {
        var target = StagingTarget(environment: [:])
        target.registration = signed.installed.registration
        target.container = signed.installed.container
        let root = signed.installed.folder.appending("net.example.wallpaper.root")
        target.registration?.trust = .root(path: root.string)
        var options = StagerOptions(now: clock)
        options.transfer.retry.maximumAttempts = 1
        // The default stall rule takes a minute. This one applies only if the test's server is slow: on a busy machine,
        // other servers may also send nothing for a second.
        if isSlow {
            options.transfer.stall = StallRule(minimum: ByteCount(1024), window: .seconds(1))
        }
        // As root, archives are unpacked only in a separate process.
        options.unpacking = .process(program, arguments: ["stagepack", "unpack-service"])
        var request = StagingRequest(.named([id]), of: target, options: options)
        request.usesDaemon = false
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        return try await StagingService(request, logger: logger) { _ in }.stage()
    }

    /// Stages the pack with a worker of a daemon; returns the reason for a refusal.
    func stageByWorker(within limit: Duration = .seconds(300)) async throws -> String? {
        var installed = signed.installed
        let before = try installed.staged()
        let pack = pack
        let problem = try await withDaemon(&installed) { installed, client in
            let task = try await client.stage([pack], of: installed)
            var problem: String?
            try await poll("the staging never ends", within: limit) {
                let current = try await client.tasks().first { $0.id == task }
                problem = current?.lastProblem
                return try current == nil || problem != nil || installed.staged() != before
            }
            return problem
        }
        // The next daemon in this world starts without the tasks of this one.
        let name: FilePath.Component = "transfers"
        try signed.world.directory.removeTree(name)
        return problem
    }
}

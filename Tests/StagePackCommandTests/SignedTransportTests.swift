import FoundationEssentials
import Logging
import StageContainer
import StageEngine
import StageModel
import StageSystem
import StageTesting
import StageTransfer
import StageTrust
import StagingService
import SystemPackage
import Testing

/// Signed metadata over TLS, over transports that are too slow, and without a registration.
@Suite(.server, .directory)
struct SignedTransportTests {
    /// Runs the program for the application, with the authority of a TLS server.
    private func prefetch(
        _ world: SignedWorld,
        trusting front: TLSFront?
    ) async throws -> Program.Ending {
        let authority = front.map { ["--cacert", $0.certificate.string] } ?? []
        return try await world.world.program.run(
            ["prefetch", "--attempts", "1", "--app", "net.example.wallpaper"] + authority
        )
    }

    /// A root of trust replaces the trust in the transport for the manifest, and does not replace the certificate.
    @Test func anEncryptedRepositoryIsStagedFrom() async throws {
        var world = try await SignedWorld()
        let front = try await TLSFront(
            port: world.server.port,
            below: world.world.directory.path
        )
        try world.register(at: [front.baseURL + "/signed"])
        try world.publish(try .small(.aurora))
        let distrusted = try await prefetch(world, trusting: nil)
        #expect(distrusted.status == 10, "\(distrusted)")
        #expect(world.server.requests.isEmpty)
        #expect(try world.installed.staged().isEmpty)
        let ending = try await prefetch(world, trusting: front)
        #expect(ending.status == 0, "\(ending)")
        #expect(try world.installed.staged() == ["aurora": 1])
    }

    /// Redirects lead metadata, manifest and archive from https to plain http.
    @Test func encryptionMayBeGivenUpOnTheWay() async throws {
        var world = try await SignedWorld()
        let front = try await TLSFront(
            port: world.server.port,
            below: world.world.directory.path
        )
        try world.register(at: [front.baseURL + "/moved"])
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        let paths = world.repository.files.keys.map { "/metadata/\($0)" }
        for path in paths + [world.manifestPath, pack.path] {
            let plain = world.server.url("/signed\(path)")
            world.server.answer("/moved\(path)", with: .redirect(to: plain))
        }
        let ending = try await prefetch(world, trusting: front)
        #expect(ending.status == 0, "\(ending)")
        #expect(try world.installed.staged() == ["aurora": 1])
        for path in ["/metadata/timestamp.json", world.manifestPath, pack.path] {
            #expect(world.server.counts(for: "/signed\(path)").requests == 1, "\(path)")
        }
        // Content after a redirect is verified, too.
        let forged = try world.world.manifest(of: [try .small(.aurora, version: 9)])
        try world.publish(try .small(.aurora, version: 2))
        for path in world.repository.files.keys.map({ "/metadata/\($0)" }) + [world.manifestPath] {
            let plain = world.server.url("/signed\(path)")
            world.server.answer("/moved\(path)", with: .redirect(to: plain))
        }
        world.server.answer("/signed" + world.manifestPath, with: .content(forged))
        let refused = try await prefetch(world, trusting: front)
        #expect(refused.status == 17, "\(refused)")
        #expect(try world.installed.staged() == ["aurora": 1])
    }

    /// Slow retrieval: the rule for stalled transfers ends a download that arrives a byte at a time.
    ///
    /// The rule is that of all transfers, with a shorter window for the test.
    @Test(arguments: [
        "/metadata/2.root.json", "/metadata/timestamp.json", "/metadata/2.snapshot.json",
        "/metadata/2.targets.json", "manifest",
    ])
    func slowRetrieval(_ name: String) async throws {
        var world = try await SignedWorld()
        if name.hasSuffix("root.json") { try world.repository.publish([.root]) }
        try world.publish(try .small(.aurora))
        let path = name == "manifest" ? world.manifestPath : name
        let content =
            world.repository.files[String(path.dropFirst("/metadata/".count))]
            ?? world.repository.contents["targets"]?["manifest.json"]
        let bytes = try #require(content)
        world.server.answer(
            "/signed\(path)",
            with: .script { wire in
                wire.send("HTTP/1.1 200 OK\r\nContent-Length: \(bytes.count)\r\n\r\n")
                // The server sends five bytes a second: the whole response would take minutes.
                wire.drip(bytes, pause: 200_000)
            }
        )
        let failure = await #expect(throws: StagingFailure.self) { try await stage(world) }
        #expect(failure?.kind == .manifestUnavailable, "\(String(describing: failure))")
        let text = failure.map { "\($0)" } ?? ""
        #expect(text.contains("stalled"), "\(text)")
        #expect(try world.installed.staged().isEmpty)
    }

    /// Stages through the library, which permits another window of the stall rule.
    private func stage(_ world: SignedWorld) async throws {
        var target = StagingTarget(environment: [:])
        target.registration = world.installed.registration
        target.container = world.installed.container
        let root = world.world.directory.path.appending("root.json")
        try world.world.directory.write(world.repository.firstRoot, to: "root.json", durably: false)
        target.registration?.trust = .root(path: root.string)
        var options = StagerOptions { Int64(Date().timeIntervalSince1970) }
        options.transfer.retry.maximumAttempts = 1
        options.transfer.stall = StallRule(minimum: ByteCount(1024), window: .seconds(1))
        var request = StagingRequest(.named([try PackID("aurora")]), of: target, options: options)
        request.usesDaemon = false
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        _ = try await StagingService(request, logger: logger) { _ in }.stage()
    }

    /// Commands that name only the container use the container's root to verify, and their hints name that root.
    @Test func theStateOfSignaturesIsShownWithoutARoot() async throws {
        var world = try await SignedWorld()
        try world.installed.uninstall()
        let root = world.world.directory.path.appending("root.json")
        try world.world.directory.write(world.repository.firstRoot, to: "root.json", durably: false)
        let url = world.server.url("/signed/manifest.json")
        let container = world.world.container.string
        let program = world.world.program
        func run(_ arguments: String...) async throws -> Program.Ending {
            try await program.run(arguments + ["--container", container])
        }
        try world.publish(try .small(.aurora))
        let source = ["--root", root.string, "--manifest", url, "--attempts", "1"]
        let first = try await program.run(["prefetch", "--container", container] + source)
        #expect(first.status == 0, "\(first)")
        for command in ["status", "why"] {
            let ending = try await run(command)
            #expect(ending.output.contains("signed: root version 1, verified "), "\(ending)")
        }

        world.server.answer("/signed/metadata/timestamp.json", with: .content([1]))
        let failed = try await program.run(["prefetch", "--container", container] + source)
        #expect(failed.status == 17, "\(failed)")
        let refused = try await run("prefetch")
        #expect(refused.status == 12, "\(refused)")
        let stored = world.world.container.appending("trust/net.example.wallpaper/root/1.json")
        #expect(refused.error.contains("the manifest at '\(url)' is refused"), "\(refused)")
        #expect(refused.error.contains("hint: pass --root \(stored)"), "\(refused)")
        let checked = try await run("doctor")
        #expect(checked.status == 3, "\(checked)")
        #expect(!checked.output.contains("asked for without one"), "\(checked)")
        let command = "stagepack prefetch --root \(stored) --container \(container)"
        #expect(checked.output.contains(command), "\(checked)")

        world.serve()
        let ending = try await run("prefetch", "--root", stored.string)
        #expect(ending.status == 0, "\(ending)")
        #expect(try await run("doctor").status == 0)
    }

    /// Without a registration the application is that of the stored manifest, and its keys stay revoked.
    @Test func newRootsAreKeptWithoutARegistration() async throws {
        var world = try await SignedWorld()
        try world.installed.uninstall()
        let root = world.world.directory.path.appending("root.json")
        try world.world.directory.write(world.repository.firstRoot, to: "root.json", durably: false)
        let source = world.world.source(manifest: world.server.url("/signed/manifest.json"))
        let arguments = ["prefetch", "--attempts", "1", "--root", root.string] + source
        try world.publish(try .small(.aurora))
        let first = try await world.world.program.run(arguments)
        #expect(first.status == 0, "\(first)")
        // The next root revokes keys; then the refresh is interrupted.
        let stolen = world.repository.timestamp.keys
        world.repository.timestamp.keys = [try SigningKey()]
        try world.repository.publish([.root])
        world.serve()
        world.server.answer("/signed/metadata/timestamp.json", with: .status(503))
        let cut = try await world.world.program.run(arguments)
        #expect(cut.status != 0, "\(cut)")
        let stored = world.world.container.appending("trust/net.example.wallpaper/root/2.json")
        #expect(FileStatus.exists(stored))
        // A server that hides the new root, and has the keys that this root revoked, gains nothing.
        world.server.answer("/signed/metadata/2.root.json", with: .status(404))
        world.repository.timestamp.signers = stolen
        try world.sign([try .small(.aurora, version: 2)])
        for name in ["timestamp.json", "3.snapshot.json", "3.targets.json"] {
            let bytes = try #require(world.repository.files[name])
            world.server.answer("/signed/metadata/\(name)", with: .content(bytes))
        }
        let ending = try await world.world.program.run(arguments)
        #expect(ending.status == 17, "\(ending)")
        #expect(ending.error.contains("is not signed as version 2 of 'root' demands"), "\(ending)")
    }
}

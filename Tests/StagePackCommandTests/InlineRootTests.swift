import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import StageTrust
import SystemPackage
import Testing

/// Registrations that contain their root of trust.
@Suite(.server, .directory)
struct InlineRootTests {
    /// A world whose registration contains the first root of the repository.
    private func world() async throws -> SignedWorld {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        let file: FilePath.Component = "net.example.wallpaper.root"
        try Directory.open(world.installed.folder).remove(file)
        world.installed.registration.trust = try inline(world.repository.firstRoot)
        try world.installed.install()
        return world
    }

    private func inline(_ root: [UInt8]) throws -> Registration.Trust {
        .inlineRoot(json: try JSONNode(json: root).value.text)
    }

    @Test func packsOfASignedManifestAreStaged() async throws {
        var world = try await world()
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 1])
        // The keys in the registration are replaced by others in a later root.
        let keys = world.repository.root.keys
        world.repository.root.keys = [try SigningKey()]
        world.repository.root.signers = keys + world.repository.root.keys
        try world.repository.publish([.root])
        try world.publish(try .small(.aurora, version: 2))
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 2])
        let status = try await world.run("status").output
        #expect(status.contains("signed: root version 2, verified "), "\(status)")
    }

    @Test func manifestsWithoutTheRequiredSignaturesAreRefused() async throws {
        var world = try await world()
        try await world.succeed()
        let good = world.repository
        world.repository.targets["targets"]?.signers = [try SigningKey()]
        try world.publish(try .small(.aurora, version: 2))
        try await world.refuse("is not signed as version 1 of 'root' demands")
        // An unsigned manifest is not accepted without a given root, either.
        let manifest = try world.world.manifest(of: [try .small(.aurora, version: 9)])
        world.server.answer("/signed/manifest.json", with: .content(manifest))
        let unsigned = try await fetch(world, root: nil)
        #expect(unsigned.status == 12, "\(unsigned)")
        world.repository = good
        try world.publish(try .small(.aurora, version: 2))
        // The same root in a file, with other spaces and another order of members.
        let text = String(decoding: world.repository.firstRoot, as: UTF8.self)
        let same = try await fetch(world, root: Array(" \(text)\n".utf8))
        #expect(same.status == 0, "\(same)")
        world.repository = try TestRepository(expiry: SignedWorld.now + .days(30))
        world.folder = "/hostile"
        try world.publish(try .small(.aurora, version: 9))
        let refused = try await fetch(world, root: world.repository.firstRoot)
        #expect(refused.status == 12, "\(refused)")
        #expect(refused.error.contains("hint: pass --app ID without --root"), "\(refused)")
        #expect(try world.installed.staged() == ["aurora": 2])
    }

    /// Fetches by the URL of the manifest into the application's container.
    private func fetch(_ world: SignedWorld, root: [UInt8]?) async throws -> Program.Ending {
        var arguments = [
            "fetch", "aurora", "--attempts", "1", "--container",
            world.installed.container.string, "--manifest",
            world.server.url("\(world.folder)/manifest.json"),
        ]
        if let root {
            let directory = world.world.directory
            try directory.write(root, to: "named.root", durably: false)
            arguments += ["--root", directory.path.appending("named.root").string]
        }
        return try await world.world.program.run(arguments)
    }

    @Test func aWorkerOfTheDaemonReadsIt() async throws {
        let world = try await world()
        var installed = world.installed
        try await withDaemon(&installed) { installed, client in
            _ = try await client.stage(["aurora"], of: installed)
            try await poll("nothing is staged") { try installed.staged() == ["aurora": 1] }
        }
    }

    @Test(.severalUsers)
    func noUserReadsOneThatOthersMayWrite() async throws {
        var world = try await world()
        let directory = world.world.directory
        try Directory.open(directory.path.removingLastComponent()).changeMode(
            of: try #require(directory.path.lastComponent),
            to: FilePermissions(rawValue: 0o755)
        )
        world.installed.world.program.environment = [
            "XDG_CONFIG_HOME": directory.path.appending("etc").string,
            "XDG_DATA_HOME": directory.path.appending("data").string,
        ]
        world.installed.world.program.wrapper = Stranger.command + [try Program.path.string]
        let name = "net.example.wallpaper"
        let file = world.installed.folder.appending("\(name).json").string
        let modes: [mode_t] = [0o644, 0o664]
        var endings: [Program.Ending] = []
        for mode in modes {
            unsafe #expect(chmod(file, mode) == 0)
            endings.append(try await world.installed.run("app", "show", name))
        }
        #expect(endings[0].status == 0, "\(endings[0])")
        #expect(endings[1].status == 11, "\(endings[1])")
        #expect(endings[1].error.contains("alone can write, found mode 0664"), "\(endings[1])")
        // Without a root, the registration contains no trusted metadata.
        world.installed.registration.trust = .transport
        try world.installed.install()
        unsafe #expect(chmod(file, 0o664) == 0)
        let plain = try await world.installed.run("app", "show", name)
        #expect(plain.status == 0, "\(plain)")
    }

    @Test func theCommandsForRegistrationsKnowIt() async throws {
        let world = try await world()
        let folder = world.installed.folder
        let file = folder.appending("net.example.wallpaper.json")
        let valid = try await Program().run(["app", "validate", file.string])
        #expect(valid.status == 0, "\(valid)")
        let shown = try await world.installed.run("app", "show", "net.example.wallpaper")
        #expect(shown.status == 0, "\(shown)")
        let id = world.repository.root.keys.map(\.id).first ?? "none"
        #expect(shown.output.contains(id), "\(shown)")
        // 'app register' writes the same root.
        let directory = world.world.directory
        let copy: FilePath.Component = "net.example.wallpaper.json"
        try directory.write(world.installed.registration.json(), to: copy, durably: false)
        try world.installed.uninstall()
        let path = directory.path.appending(copy).string
        let registered = try await world.installed.run("app", "register", path)
        #expect(registered.status == 0, "\(registered)")
        try await world.succeed()
    }

    /// Root metadata that its own keys did not sign is detected before it is installed.
    @Test func aRootThatIsNotSignedIsFound() async throws {
        var world = try await world()
        let text = String(decoding: world.repository.firstRoot, as: UTF8.self)
        let changed = text.replacing(#""version":1"#, with: #""version":2"#)
        world.installed.registration.trust = try inline(Array(changed.utf8))
        try world.installed.install()
        let file = world.installed.folder.appending("net.example.wallpaper.json")
        let found = try await Program().run(["app", "validate", file.string])
        #expect(found.status == 3, "\(found)")
        let reason =
            "root metadata in the registration: version 2 of the root metadata is not signed"
        #expect(found.output.contains("trust.root: \(reason)"), "\(found)")
        let ending = try await world.run("prefetch", "--attempts", "1")
        #expect(ending.status == 11, "\(ending)")
        #expect(ending.error.contains(reason), "\(ending)")
        #expect(world.server.requests.isEmpty)
    }
}

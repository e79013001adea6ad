import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import StageTrust
import SystemPackage
import Testing

/// The manifest as a target of a repository: the staged packs, their sources, and the stored metadata.
@Suite(.server, .directory)
struct SignedManifestTests {
    @Test func aSignedManifestIsStaged() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 1])
        #expect(
            world.requests(since: 0) == [
                "metadata/2.root.json", "metadata/timestamp.json", "metadata/2.snapshot.json",
                "metadata/2.targets.json", String(world.manifestPath.dropFirst()),
                "packs/aurora-1.tar.zst",
            ]
        )
        let files = try Directory.open(world.metadata).entries().map(\.path.string).sorted()
        let stored = ["@refresh.json", "root", "snapshot.json", "targets.json", "timestamp.json"]
        #expect(files == stored)
    }

    @Test func nothingNewIsTwoRequests() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        try await world.succeed()
        let count = world.server.requests.count
        try await world.succeed()
        #expect(
            world.requests(since: count) == ["metadata/2.root.json", "metadata/timestamp.json"]
        )
        let sent = world.server.counts(for: "/signed/metadata/timestamp.json")
        #expect(sent.bytes == world.repository.files["timestamp.json"]?.count)
    }

    @Test func aNewVersionReplacesAnOlderOne() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        try await world.succeed()
        try world.publish(try .small(.aurora, version: 2))
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 2])
    }

    @Test func withoutConsistentSnapshotsFilesHaveTheirOwnNames() async throws {
        var world = try await SignedWorld()
        world.repository.isConsistent = false
        world.repository.listsDigests = true
        try world.repository.publish([.root])
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        let manifest = try #require(world.repository.contents["targets"]?["manifest.json"])
        world.server.answer("/signed/manifest.json", with: .content(manifest))
        try await world.succeed()
        #expect(world.requests(since: 0).contains("metadata/snapshot.json"))
        #expect(world.requests(since: 0).contains("manifest.json"))
    }

    /// The server is another machine, whose responses come through a proxy.
    @Test func plainHTTPIsEnoughFromAnywhere() async throws {
        var world = try await SignedWorld()
        world.folder = "http://cdn.example.invalid/signed"
        world.installed.world.program.environment["http_proxy"] = world.server.baseURL
        try world.register(at: [world.folder])
        try world.publish(try .small(.aurora))
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 1])
    }

    /// Metadata, manifest and archive each lead to another machine, without encryption.
    @Test func redirectsMayLeadAnywhere() async throws {
        var world = try await SignedWorld()
        world.installed.world.program.environment["http_proxy"] = world.server.baseURL
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        let other = "http://cdn.example.invalid/mirror"
        world.serve([pack], in: other)
        let paths =
            ["/metadata/timestamp.json", "/metadata/2.targets.json", pack.path]
            + [world.manifestPath]
        for path in paths {
            world.server.answer("/signed\(path)", with: .redirect(to: other + path))
        }
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 1])
    }

    @Test func aPlanStoresNothing() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        let ending = try await world.run("plan")
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.output.contains("aurora"))
        #expect(!FileStatus.exists(world.installed.container))
        try await world.succeed()
        let stored = try ContainerReader.open(world.installed.container)?
            .storedTrust(for: world.installed.registration.application)
        try world.publish(try .small(.aurora, version: 2))
        #expect(try await world.run("plan").status == 0)
        let later = try ContainerReader.open(world.installed.container)?
            .storedTrust(for: world.installed.registration.application)
        #expect(later == stored)
    }

    @Test func anApplicationThatIsGoneLeavesNoMetadata() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        try await world.succeed()
        #expect(FileStatus.exists(world.metadata))
        try world.installed.uninstall()
        #expect(try await world.installed.run("gc", "--unregistered").status == 0)
        #expect(!FileStatus.exists(world.metadata))
    }

    @Test func metadataHasTheModesOfRecords() async throws {
        var world = try await SignedWorld()
        try world.repository.publish([.root])
        try world.publish(try .small(.aurora))
        try await world.succeed()
        let root = try Directory.open(world.metadata)
        for name in ["timestamp.json", "@refresh.json", "root/2.json"] {
            #expect(try root.status(FilePath(name))?.mode == 0o644)
        }
        #expect(try root.status().mode == 0o755)
        let ending = try await world.run("doctor")
        #expect(!ending.output.contains("problem: '"), "\(ending.output)")
        try await shell("chmod 666 \"$1/targets.json\"", world.metadata.string)
        let wrong = try await world.run("doctor")
        #expect(wrong.status == 3)
        #expect(wrong.output.contains("targets.json"), "\(wrong.output)")
    }

    /// A command that names the URL of a signed manifest without its root is refused.
    @Test(arguments: [["--manifest"], []])
    func aRootIsNotLeftOut(_ words: [String]) async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        try await world.succeed()
        let forged = try world.world.manifest(of: [try .small(.aurora, version: 9)])
        world.server.answer("/signed/manifest.json", with: .content(forged))
        world.server.answer(
            "/signed/packs/aurora-9.tar.zst",
            with: .content(try SamplePack.small(.aurora, version: 9).archive)
        )
        let container = ["--container", world.installed.container.string]
        let source = words.isEmpty ? [] : words + [world.server.url("/signed/manifest.json")]
        let arguments = ["fetch", "aurora", "--attempts", "1"] + source + container
        let ending = try await world.world.program.run(arguments)
        // Without a URL the registration of the application in the container gives the root.
        #expect(ending.status == (words.isEmpty ? 0 : 12), "\(ending)")
        #expect(try world.installed.staged() == ["aurora": 1])
    }

    @Test func aRootMayBeNamedWithTheURL() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        let root = world.world.directory.path.appending("root.json")
        try world.world.directory.write(world.repository.firstRoot, to: "root.json", durably: false)
        let source = world.world.source(manifest: world.server.url("/signed/manifest.json"))
        let arguments = ["prefetch", "--attempts", "1", "--root", root.string] + source
        let ending = try await world.world.program.run(arguments)
        #expect(ending.status == 0, "\(ending)")
        #expect(try world.world.staged(.aurora) != nil)
        let other = try TestRepository(expiry: SignedWorld.now + .days(30))
        try world.world.directory.write(other.firstRoot, to: "root.json", durably: false)
        let refused = try await world.world.program.run(arguments)
        #expect(refused.status == 17, "\(refused)")
    }

    @Test func aRegistrationMayGiveTheRootUp() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        try await world.succeed()
        world.installed.registration.trust = .transport
        try world.installed.install()
        let manifest = try world.world.manifest(of: [try .small(.aurora)])
        world.server.answer("/signed/manifest.json", with: .content(manifest))
        try await world.succeed()
        #expect(!FileStatus.exists(world.metadata))
    }

    @Test func aRootIsValidatedWithItsRegistration() async throws {
        let world = try await SignedWorld()
        let directory = world.world.directory
        let registration = directory.path.appending("net.example.wallpaper.json")
        func findings(root: String) async throws -> String {
            var changed = world.installed.registration
            changed.trust = .root(path: root)
            try directory.write(
                changed.json(),
                to: "net.example.wallpaper.json",
                durably: false
            )
            return try await Program().run(["app", "validate", registration.string]).output
        }
        try directory.write(world.repository.firstRoot, to: "good.root", durably: false)
        try directory.write(world.repository.firstRoot, to: "root.json", durably: false)
        try directory.write(Array("{}".utf8), to: "bad.root", durably: false)
        #expect(try await findings(root: "good.root") == "")
        #expect(try await findings(root: "root.json").contains("counts as a registration"))
        #expect(try await findings(root: "bad.root").contains("the root metadata cannot be read"))
        #expect(try await findings(root: "no.root").contains("no.root"))
    }

    @Test func theRegistrationOfAMissingRootIsNamed() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        try Directory.open(world.installed.folder).remove("net.example.wallpaper.root")
        let ending = try await world.run("prefetch", "--attempts", "1")
        #expect(ending.status == 11, "\(ending)")
        let start = "net.example.wallpaper.json': root metadata: cannot open '"
        let end = "net.example.wallpaper.root': No such file or directory\n"
        #expect(ending.error.contains("registration '"), "\(ending)")
        #expect(ending.error.contains(start) && ending.error.contains(end), "\(ending)")
    }

    /// Other users could replace the keys: through the group, through others, or, for root, as another owner.
    @Test(arguments: geteuid() == 0 ? [0o664, 0o646, 0o644] : [0o664, 0o646] as [mode_t])
    func aRootThatOthersMayWriteIsRefused(mode: mode_t) async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        let isRoot = geteuid() == 0
        // Only root may give files away.
        let owner: uid_t = mode == 0o644 ? 65534 : geteuid()
        func expose(_ file: FilePath) {
            unsafe #expect(chmod(file.string, mode) == 0)
            unsafe #expect(chown(file.string, owner, gid_t.max) == 0)
        }
        let reason =
            owner == geteuid()
            ? "expected a file that its owner alone can write, found mode 0\(String(mode, radix: 8))"
            : "expected a file of root, found one of user 65534"
        expose(world.installed.folder.appending("net.example.wallpaper.root"))
        let registered = try await world.run("prefetch", "--attempts", "1")
        #expect(registered.status == 11, "\(registered)")
        #expect(
            registered.error.contains("net.example.wallpaper.root': \(reason)"),
            "\(registered)"
        )
        #expect(world.server.requests.isEmpty)
        // A user may name any file with '--root'; for root the file is checked.
        let root = world.world.directory.path.appending("root.json")
        try world.world.directory.write(world.repository.firstRoot, to: "root.json", durably: false)
        expose(root)
        let source = world.world.source(manifest: world.server.url("/signed/manifest.json"))
        let arguments = ["plan", "--attempts", "1", "--root", root.string] + source
        let named = try await world.world.program.run(arguments)
        if isRoot {
            #expect(named.status == 11, "\(named)")
            #expect(named.error.contains("root.json': \(reason)"), "\(named)")
        }
        unsafe #expect(chmod(root.string, 0o644) == 0)
        unsafe #expect(chown(root.string, geteuid(), gid_t.max) == 0)
        #expect(try await world.world.program.run(arguments).status != 11)
    }

    @Test(.root("only root reads no others' registrations"))
    func rootReadsNoRegistrationThatOthersMayWrite() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        let file = world.installed.folder.appending("net.example.wallpaper.json").string
        unsafe #expect(chmod(file, 0o664) == 0)
        let writable = try await world.run("prefetch", "--attempts", "1")
        #expect(writable.status == 11, "\(writable)")
        #expect(writable.error.contains("alone can write, found mode 0664"), "\(writable)")
        // The application's root is unknown, so no pack may be staged without it.
        let forged = try world.world.manifest(of: [try .small(.aurora, version: 9)])
        world.server.answer("/signed/manifest.json", with: .content(forged))
        let unsigned = try await world.world.program.run([
            "prefetch", "--attempts", "1", "--manifest", world.server.url("/signed/manifest.json"),
            "--container", world.installed.container.string,
        ])
        #expect(unsigned.status == 12, "\(unsigned)")
        #expect(unsigned.error.contains("alone can write, found mode 0664"), "\(unsigned)")
        try world.publish(try .small(.aurora))
        unsafe #expect(chmod(file, 0o644) == 0)
        unsafe #expect(chown(file, 65534, gid_t.max) == 0)
        let foreign = try await world.run("prefetch", "--attempts", "1")
        #expect(foreign.status == 11, "\(foreign)")
        #expect(foreign.error.contains("expected a file of root, found one of user 65534"))
        // Before its installation, the registration may belong to any user.
        let validated = try await Program().run(["app", "validate", file])
        #expect(validated.status == 0, "\(validated)")
        unsafe #expect(chown(file, 0, gid_t.max) == 0)
        try await world.succeed()
    }

    @Test func aRootThatIsMissingIsNamed() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        world.installed.registration.trust = .root(path: "other.root.json")
        try world.installed.install()
        let ending = try await world.run("prefetch")
        #expect(ending.status == 11, "\(ending)")
        #expect(ending.error.contains("other.root.json"))
    }
}

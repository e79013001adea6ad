import StageContainer
import StageModel
import StageSystem
import StageTesting
import StageTrust
import SystemPackage
import Testing

/// Signed manifests in a container that other manifests use, too.
@Suite(.server, .directory)
struct SharedContainerTrustTests {
    /// A world in which version 1 is staged, and the server offers an unsigned manifest of another application.
    private func staged(
        _ packs: SamplePack...,
        of application: String = "net.example"
    ) async throws -> SignedWorld {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        try await world.succeed()
        let text = String(decoding: try world.world.manifest(of: packs), as: UTF8.self)
        let other = text.replacing("net.example.wallpaper", with: application)
        world.server.answer("/other/manifest.json", with: .content(Array(other.utf8)))
        for pack in packs {
            world.server.answer("/other" + pack.path, with: .content(pack.archive))
        }
        return world
    }

    private func fetch(
        _ pack: String,
        into container: FilePath? = nil,
        _ world: SignedWorld
    ) async throws -> Program.Ending {
        let words = container.map { ["--container", $0.string] } ?? []
        return try await world.world.program.run(
            ["fetch", pack, "--attempts", "1"] + words
                + ["--manifest", world.server.url("/other/manifest.json")]
        )
    }

    /// Runs the installed application 'net.example.other', whose manifest is not signed.
    private func prefetchOther(_ world: SignedWorld) async throws -> Program.Ending {
        try await world.installed.run(
            "prefetch",
            "--app",
            "net.example.other",
            "--attempts",
            "1"
        )
    }

    @Test func anotherApplicationTakesNoPackOver() async throws {
        let world = try await staged(try .small(.aurora, version: 99))
        let ending = try await fetch("aurora", world)
        #expect(ending.status == 12, "\(ending)")
        #expect(
            ending.error.contains("its pack 'aurora' is one of application 'net.example.wallpaper'")
        )
        #expect(ending.error.contains("hint: give the pack another id"))
        #expect(try world.installed.staged() == ["aurora": 1])
    }

    @Test func aRegisteredApplicationTakesNoPackOver() async throws {
        var world = try await staged(
            try .small(.aurora, version: 99),
            of: "net.example.other"
        )
        world.installed.registration.application = try ApplicationID("net.example.other")
        world.installed.registration.trust = .transport
        world.installed.registration.manifestURLs = [world.server.url("/other/manifest.json")]
        try world.installed.install()
        let ending = try await prefetchOther(world)
        #expect(ending.status == 12, "\(ending)")
        #expect(try world.installed.staged() == ["aurora": 1])
    }

    /// A pack that was staged before the signed manifest was known: a newer version, or the same.
    @Test(arguments: [99, 1])
    func aPackOfAnUnsignedApplicationIsReplaced(version: Int) async throws {
        var world = try await SignedWorld()
        var registration = world.installed.registration
        registration.application = try ApplicationID("net.example.other")
        registration.trust = .transport
        registration.manifestURLs = [world.server.url("/other/manifest.json")]
        try world.installed.write(registration.json(), to: "net.example.other.json")
        var unsigned = try SamplePack.small(.aurora, version: 99)
        unsigned.pack.version = version
        let manifest = Manifest(
            application: registration.application,
            revision: 1,
            packs: [unsigned.pack]
        )
        world.server.answer("/other/manifest.json", with: .content(manifest.json()))
        world.server.answer("/other" + unsigned.path, with: .content(unsigned.archive))
        let ending = try await prefetchOther(world)
        #expect(ending.status == 0, "\(ending)")
        #expect(try world.installed.staged() == ["aurora": version])
        let signed = try SamplePack.small(.aurora)
        try world.publish(signed)
        try await world.succeed()
        let reader = try #require(try ContainerReader.open(world.installed.container))
        #expect(try reader.record(of: .aurora)?.contentDigest == signed.pack.contentDigest)
    }

    @Test func packsOfOtherNamesAreStaged() async throws {
        let world = try await staged(try .small(try PackID("dunes")))
        let ending = try await fetch("dunes", world)
        #expect(ending.status == 0, "\(ending)")
        #expect(try world.installed.staged() == ["aurora": 1, "dunes": 1])
        try await world.succeed()
    }

    /// Before the first staging, only the registration assigns the container to an application.
    @Test func anotherPathToTheContainerIsNoWayAroundTheRoot() async throws {
        let world = try await SignedWorld()
        let group = world.installed.container
        let alias = world.world.directory.path.appending("alias")
        try Directory.make(group.removingLastComponent())
            .removeTree(try #require(group.lastComponent))
        try world.world.directory.createLink(
            "alias",
            to: group.removingLastComponent().string
        )
        let manifest = try world.world.manifest(of: [try .small(.aurora, version: 9)])
        world.server.answer("/other/manifest.json", with: .content(manifest))
        let ending = try await fetch("aurora", into: alias.appending("net.example"), world)
        #expect(ending.status == 12, "\(ending)")
        #expect(try world.installed.staged() == [:])
    }

    @Test func aRootOfOthersIsNotTakenForTheRegisteredOne() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        try await world.succeed()
        let good = world.repository
        world.repository = try TestRepository(expiry: SignedWorld.now + .days(30))
        world.folder = "/hostile"
        try world.repository.publish([.root])
        let packs = [try SamplePack.small(.aurora, version: 9)]
        try world.sign(packs)
        world.serve(packs)
        let directory = world.world.directory
        try directory.write(world.repository.firstRoot, to: "other.root", durably: false)
        try directory.write(good.firstRoot, to: "same.root", durably: false)
        func fetch(_ root: String, from folder: String) async throws -> Program.Ending {
            try await world.world.program.run([
                "fetch", "aurora", "--attempts", "1", "--container",
                world.installed.container.string, "--root", directory.path.appending(root).string,
                "--manifest", world.server.url("\(folder)/manifest.json"),
            ])
        }
        let refused = try await fetch("other.root", from: "/hostile")
        #expect(refused.status == 12, "\(refused)")
        #expect(refused.error.contains("hint: pass --app ID without --root"), "\(refused)")
        #expect(try world.installed.staged() == ["aurora": 1])
        let roots = try Directory.open(world.metadata.appending("root"))
        #expect(try roots.entries().map(\.path.string) == ["1.json"])
        let registered = String(decoding: good.firstRoot, as: UTF8.self)
        #expect(try text(of: roots.path.appending("1.json")) == registered)
        let same = try await fetch("same.root", from: "/signed")
        #expect(same.status == 0, "\(same)")
        try await world.succeed()
    }

    /// A run that started before another one stored newer metadata does not replace these.
    @Test func theSlowerOfTwoClientsTakesNothingBack() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        let old = try #require(world.repository.files["timestamp.json"])
        try world.publish(try .small(.aurora, version: 2))
        let new = try #require(world.repository.files["timestamp.json"])
        let directory = world.world.directory
        try directory.write(world.repository.firstRoot, to: "a.root", durably: false)
        let arguments = [
            "fetch", "aurora", "--attempts", "1", "--root",
            directory.path.appending("a.root").string,
            "--manifest", world.server.url("/signed/manifest.json"),
        ]
        let first = try await world.world.program.run(arguments)
        #expect(first.status == 0, "\(first)")
        // Without '--container' the container is known only when the manifest is there.
        world.server.answer("/signed/metadata/timestamp.json", with: .content(old))
        let second = try await world.world.program.run(arguments)
        #expect(second.status == 0, "\(second)")
        let container = world.installed.container.removingLastComponent()
            .appending("net.example.wallpaper")
        let reader = try #require(try ContainerReader.open(container))
        let application = world.installed.registration.application
        #expect(try reader.storedTrust(for: application).files["timestamp.json"] == new)
        #expect(try reader.record(of: .aurora)?.version == 2)
        #expect(try reader.storedManifest(for: application)?.text.contains("aurora-2") == true)
    }
}

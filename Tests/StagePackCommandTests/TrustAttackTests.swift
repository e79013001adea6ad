import FoundationEssentials
import StageContainer
import StageModel
import StageSystem
import StageTesting
import StageTrust
import SystemPackage
import Testing

/// The attacks in the specification of The Update Framework (section 1.5.2), by mirrors, by the network and by programs of this
/// machine, on metadata and manifest.
@Suite(.server, .directory)
struct TrustAttackTests {
    /// A world in which version 1 is staged.
    private func staged() async throws -> SignedWorld {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        try await world.succeed()
        return world
    }

    @Test func arbitraryInstallationOfAnotherManifest() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        let forged = try world.world.manifest(of: [try .small(.aurora, version: 9)])
        world.server.answer("/signed" + world.manifestPath, with: .content(forged))
        try await world.refuse(
            "'manifest.json' is not what version 2 of the targets metadata describes"
        )
    }

    @Test func arbitraryInstallationWithOtherKeys() async throws {
        var world = try await staged()
        world.repository.targets["targets"]?.signers = [try SigningKey()]
        try world.publish(try .small(.aurora, version: 2))
        try await world.refuse(
            "version 3 of the targets metadata is not signed as version 1 of 'root' demands"
        )
    }

    /// A file without an end is downloaded only up to the limit of its length.
    @Test(arguments: ["metadata/timestamp.json", "metadata/2.snapshot.json", "manifest"])
    func endlessData(_ name: String) async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        let path = name == "manifest" ? world.manifestPath : "/\(name)"
        var endless = Answer.content(Array(repeating: 0x20, count: 1 << 16))
        endless.isEndless = true
        world.server.answer("/signed\(path)", with: endless)
        try await world.refuse("expected at most")
        #expect(world.server.counts(for: "/signed\(path)").bytes < 64 << 20)
    }

    @Test func fastForwardIsRecoveredFromByNewKeys() async throws {
        var world = try await staged()
        // An attacker with the keys of timestamp and snapshot signs versions that no publisher reaches.
        world.repository.timestamp.version = 1 << 40
        world.repository.snapshot.version = 1 << 40
        try world.repository.publish([.snapshot, .timestamp])
        world.serve()
        try await world.succeed()
        world.repository.timestamp.version = 2
        world.repository.snapshot.version = 2
        try world.publish(try .small(.aurora, version: 2))
        try await world.refuse("goes back from version")
        world.repository.timestamp.keys = [try SigningKey()]
        world.repository.snapshot.keys = [try SigningKey()]
        try world.repository.publish([.root])
        try world.publish(try .small(.aurora, version: 2))
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 2])
    }

    /// An attacker with all keys but the root's signs a revision that no publisher reaches.
    @Test func fastForwardOfTheRevisionIsRecoveredFromByNewKeys() async throws {
        var world = try await staged()
        world.installed.world.revision = 900_000
        try world.publish(try .small(.aurora, version: 9))
        try await world.succeed()
        world.repository.timestamp.keys = [try SigningKey()]
        world.repository.snapshot.keys = [try SigningKey()]
        world.repository.targets["targets"]?.keys = [try SigningKey()]
        try world.repository.publish([.root])
        world.installed.world.revision = 3
        try world.publish(try .small(.aurora, version: 10))
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 10])
        world.installed.world.revision = 2
        try world.publish(try .small(.aurora, version: 11))
        let ending = try await world.run("prefetch", "--attempts", "1")
        #expect(ending.status == 12, "\(ending)")
    }

    @Test func indefiniteFreezeEndsWithExpiry() async throws {
        var world = try await staged()
        world.repository.timestamp.expiry = SignedWorld.now - .days(1)
        try world.publish(try .small(.aurora), try .small(try PackID("dunes")))
        try await world.refuse("version 3 of the timestamp metadata expired at")
        // The staged pack stays in use.
        let load = try await world.run("load", "aurora")
        #expect(load.status == 0)
        let new = try await world.run("load", "dunes", "--attempts", "1")
        #expect(new.status == 17)
        let hint =
            "check this machine's clock with 'date'; if it is right, tell the publisher to renew the "
            + "metadata"
        #expect(new.error.contains("; what is staged stays in use\nhint: \(hint)\n"), "\(new)")
        let doctor = try await world.run("doctor", "--online", "--attempts", "1")
        let again = "run 'stagepack prefetch --app net.example.wallpaper'"
        #expect(doctor.output.contains("  hint: \(hint); to try again, \(again)\n"), "\(doctor)")
    }

    @Test func aBlockedRepositoryIsNoWayAroundExpiry() async throws {
        var world = try await SignedWorld()
        world.repository.timestamp.expiry = SignedWorld.now + .days(1)
        let packs = [
            try SamplePack.small(.aurora),
            try SamplePack.small(try PackID("dunes"), policy: .onDemand),
        ]
        try world.sign(packs)
        world.serve(packs)
        try await world.succeed()
        world.server.answer("/signed/metadata/2.root.json", with: .status(503))
        let stale = try await world.run("load", "dunes", "--attempts", "1")
        #expect(stale.status == 0, "\(stale)")
        #expect(stale.error.contains("using revision 1, verified"), "\(stale)")
    }

    @Test func mixAndMatch() async throws {
        var world = try await SignedWorld()
        world.repository.listsDigests = true
        try world.publish(try .small(.aurora))
        let old = try #require(world.repository.files["2.snapshot.json"])
        try world.publish(try .small(.aurora, version: 2))
        world.server.answer("/signed/metadata/3.snapshot.json", with: .content(old))
        try await world.refuse(
            "'snapshot.json' is not what version 3 of the timestamp metadata describes"
        )
    }

    @Test func rollbackOfTheTimestamp() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        let old = try #require(world.repository.files["timestamp.json"])
        try world.publish(try .small(.aurora, version: 2))
        try await world.succeed()
        world.server.answer("/signed/metadata/timestamp.json", with: .content(old))
        try await world.refuse("the timestamp metadata goes back from version 3 to version 2")
    }

    @Test func rollbackOfTheSnapshot() async throws {
        var world = try await staged()
        world.repository.listedSnapshot = 1
        try world.repository.publish([.timestamp])
        world.serve()
        try await world.refuse("goes back from version 2 to version 1 of the snapshot metadata")
    }

    @Test func rollbackOfTheTargets() async throws {
        var world = try await staged()
        world.repository.listedTargets["targets"] = 1
        try world.repository.publish([.snapshot, .timestamp])
        world.serve()
        try await world.refuse("goes back from version 2 to version 1 of the targets metadata")
    }

    @Test func aRootOfOtherKeys() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        try world.trust(try TestRepository(expiry: SignedWorld.now + .days(30)).firstRoot)
        try await world.refuse("version 2 of the timestamp metadata is not signed as version 1 of")
        // The packager may have taken the root of another publisher.
        try await world.refuse("hint: compare the root with the publisher's")
    }

    @Test func rotatedKeysAreFollowedAndOldOnesAreNot() async throws {
        var world = try await staged()
        let stolen = world.repository.targets["targets"]?.keys
        world.repository.targets["targets"]?.keys = [try SigningKey()]
        let root = world.repository.root.keys
        world.repository.root.keys = [try SigningKey()]
        world.repository.root.signers = root + world.repository.root.keys
        try world.repository.publish([.root])
        world.repository.root.signers = nil
        try world.repository.publish([.root])
        try world.publish(try .small(.aurora, version: 2))
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 2])
        world.repository.targets["targets"]?.signers = stolen
        try world.publish(try .small(.aurora, version: 3))
        try await world.refuse("is not signed as version 3 of 'root' demands")
        // A server that no longer serves the later roots has no effect.
        world.server.answer("/signed/metadata/2.root.json", with: .status(404))
        world.server.answer("/signed/metadata/3.root.json", with: .status(404))
        try await world.refuse("is not signed as version 3 of 'root' demands")
    }

    @Test func aHostileMirrorGivesWayToAGoodOne() async throws {
        var world = try await SignedWorld()
        try world.register(at: ["/hostile", "/signed"])
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        let good = world.repository
        world.repository.targets["targets"]?.signers = [try SigningKey()]
        try world.sign([try .small(.aurora, version: 9)])
        world.serve(in: "/hostile")
        world.repository = good
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 1])
        #expect(world.server.counts(for: "/hostile/metadata/timestamp.json").requests == 1)
    }

    @Test func aHostileMirrorIsNamedWhereTheOtherIsNotThere() async throws {
        var world = try await SignedWorld()
        try world.register(at: ["/hostile", "/signed"])
        try world.publish(try .small(.aurora))
        world.serve(in: "/hostile")
        world.server.answer("/hostile/metadata/timestamp.json", with: .content(Array("{}".utf8)))
        world.server.answer("/signed/metadata/timestamp.json", with: .dropped)
        try await world.refuse("the timestamp metadata cannot be read")
    }

    @Test func anIndexedPackIsAsGoodAsItsManifest() async throws {
        var world = try await SignedWorld()
        let publisher = try IndexedPublisher(world.world)
        try publisher.write(["maps/one.map": noise(300_000, seed: 1)])
        let index = try await publisher.package(version: 1)
        let manifest = try publisher.manifest(of: index, version: 1)
        world.repository.contents["targets"] = ["manifest.json": manifest]
        try world.repository.publish([.targets, .snapshot, .timestamp])
        world.folder = ""
        try world.register(at: [""])
        world.serve()
        let ending = try await world.run("load", "levels", "--attempts", "1")
        #expect(ending.status == 0, "\(ending)")
        world.repository.contents["targets"] = ["manifest.json": manifest + [0x0A]]
        try world.repository.publish([.targets, .snapshot, .timestamp])
        world.serve()
        world.server.answer(world.manifestPath, with: .content(manifest + [0x20]))
        let file = try await world.run("fetch", "levels", "--attempts", "1")
        #expect(file.status == 17, "\(file)")
    }
}

/// Changes by another program in the container.
@Suite(.server, .directory)
struct StoredTrustTests {
    private func staged() async throws -> SignedWorld {
        var world = try await SignedWorld()
        try world.repository.publish([.root])
        let packs = [
            try SamplePack.small(.aurora),
            try SamplePack.small(try PackID("dunes"), policy: .onDemand),
        ]
        try world.sign(packs)
        world.serve(packs)
        try await world.succeed()
        return world
    }

    /// Damaged metadata is downloaded again, and is not trusted without a server.
    @Test(arguments: ["timestamp.json", "snapshot.json", "targets.json", "root/2.json"])
    func storedMetadataIsNotBelieved(_ name: String) async throws {
        let world = try await staged()
        let path = world.metadata.appending(FilePath(name).components)
        let other = try TestRepository(expiry: SignedWorld.now + .days(30))
        let role = try #require(path.lastComponent)
        let forged = name.hasPrefix("root") ? "1.root.json" : "1.\(role)"
        let bytes = other.files[forged] ?? other.files[role.string] ?? []
        try Directory.open(path.removingLastComponent())
            .write(bytes, to: role, durably: false)
        let offline = try await world.run("plan", "--offline")
        // The root after the registered one has the same keys here: without it, all metadata is valid.
        #expect(offline.status == (name.hasPrefix("root") ? 0 : 17), "\(offline)")
        try await world.succeed()
        #expect(try await world.run("plan", "--offline").status == 0)
    }

    @Test func aStoredManifestIsNotBelieved() async throws {
        let world = try await staged()
        let application = world.installed.registration.application
        let container = try #require(try Container.open(world.installed.container))
        var record = try #require(try container.storedManifest(for: application))
        let forged = try world.world.manifest(of: [try .small(.aurora, version: 9)])
        record.text = String(decoding: forged, as: UTF8.self)
        try container.store(record, for: application)
        #expect(try await world.run("plan", "--offline").status == 17)
        // The stored manifest is not accepted if the server does not respond, either.
        world.server.answer("/signed/metadata/3.root.json", with: .status(503))
        let unreachable = try await world.run("fetch", "dunes", "--attempts", "1")
        #expect(unreachable.status == 17, "\(unreachable)")
        world.server.answer("/signed/metadata/3.root.json", with: .status(404))
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 1])
        let text = try container.storedManifest(for: application)?.text
        #expect(text?.contains("\"version\" : 9") == false)
    }

    /// A stored manifest that differs from the metadata is reported as damaged, not as the publisher's fault.
    @Test func aStoredManifestThatWasChangedIsNamed() async throws {
        let world = try await staged()
        let application = world.installed.registration.application
        let container = try #require(try Container.open(world.installed.container))
        var record = try #require(try container.storedManifest(for: application))
        record.text += " "
        try container.store(record, for: application)
        let offline = try await world.run("plan", "--offline")
        #expect(offline.status == 17, "\(offline)")
        #expect(offline.error.contains("the stored manifest of 'http://"), "\(offline)")
        #expect(offline.error.contains("hint: run again with the network"), "\(offline)")
        let status = try await world.run("status").output
        #expect(status.contains("; not trusted: the stored manifest of 'http://"), "\(status)")
        let doctor = try await world.run("doctor")
        #expect(doctor.status == 3)
        #expect(
            doctor.output.contains("problem: trust of net.example.wallpaper: the stored manifest")
        )
        try await world.succeed()
        #expect(try await world.run("doctor").status == 0)
    }

    /// Without a server, the last verified manifest is used, and its age is printed.
    @Test(arguments: [Answer.status(503), Answer.dropped])
    func theLastVerifiedManifestIsUsedWithoutAServer(_ answer: Answer) async throws {
        let world = try await staged()
        world.server.answer("/signed/metadata/3.root.json", with: answer)
        let ending = try await world.run("load", "dunes", "--attempts", "1")
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.error.contains("using revision 1, verified"), "\(ending)")
    }
}

/// Reports about trusted metadata.
@Suite(.server, .directory)
struct TrustReportTests {
    private struct Status: Decodable {
        struct Trust: Decodable {
            var application: String
            var rootVersion: Int
            var verified: String
            var staleSince: String?
            var problem: String?
            var roles: [Role]
        }
        struct Role: Decodable {
            var name, expires: String
            var keys: [String]
            var version, threshold: Int
            var expiresSoon: Bool
        }
        var trust: [Trust]?
    }

    private func status(_ world: SignedWorld) async throws -> Status.Trust {
        let ending = try await world.run("status", "--json")
        #expect(ending.status == 0, "\(ending)")
        let report = try JSONDecoder().decode(Status.self, from: Data(ending.output.utf8))
        return try #require(report.trust?.first)
    }

    @Test func statusShowsTheTrustedMetadata() async throws {
        var world = try await SignedWorld()
        world.repository.snapshot.threshold = 1
        try world.repository.publish([.root])
        try world.publish(try .small(.aurora))
        try await world.succeed()
        let trust = try await status(world)
        #expect(trust.rootVersion == 2)
        #expect(trust.staleSince == nil)
        #expect(trust.problem == nil)
        #expect(trust.roles.map(\.name) == ["root", "timestamp", "snapshot", "targets"])
        #expect(trust.roles.map(\.version) == [2, 2, 2, 2])
        let keys = try [
            world.repository.root, world.repository.timestamp, world.repository.snapshot,
            #require(world.repository.targets["targets"]),
        ].map { $0.keys.map { String($0.id.prefix(8)) } }
        #expect(trust.roles.map(\.keys) == keys)
        #expect(trust.roles.allSatisfy { !$0.expiresSoon })
        for command in ["status", "why"] {
            let text = try await world.run(command).output
            #expect(text.contains("signed: root version 2, verified "), "\(text)")
            #expect(text.contains("timestamp, version 2, until "), "\(text)")
        }
        let doctor = try await world.run("doctor")
        #expect(doctor.output.contains("ok: trust of net.example.wallpaper: root version 2"))
    }

    /// Metadata that expired after it was stored is reported everywhere, and does not affect staged packs.
    @Test func staleMetadataIsNamed() async throws {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        try await world.succeed()
        world.repository.timestamp.expiry = SignedWorld.now - .days(1)
        try world.repository.publish([.timestamp])
        let expired = try #require(world.repository.files["timestamp.json"])
        try Directory.open(world.metadata).write(expired, to: "timestamp.json", durably: false)
        let trust = try await status(world)
        #expect(trust.staleSince == world.repository.timestamp.expiry.description)
        #expect(try await world.run("status").output.contains("stale since "))
        let doctor = try await world.run("doctor")
        #expect(doctor.status == 3)
        #expect(doctor.output.contains("problem: trust of net.example.wallpaper: stale since"))
        #expect(try await world.run("load", "aurora").status == 0)
        // A server that does not respond cannot cause more to be staged, either.
        world.server.answer("/signed/metadata/2.root.json", with: .status(503))
        try await world.refuse("version 3 of the timestamp metadata expired at")
    }

    @Test func metadataThatExpiresSoonIsNamed() async throws {
        var world = try await SignedWorld()
        world.repository = try TestRepository(expiry: SignedWorld.now + .days(10))
        try world.trust(world.repository.firstRoot)
        try world.publish(try .small(.aurora))
        try await world.succeed()
        let doctor = try await world.run("doctor")
        #expect(doctor.status == 0, "\(doctor)")
        // The time at which the registered root was stored is not known; the times of the others are.
        #expect(doctor.output.contains("note: trust of net.example.wallpaper: the root metadata"))
        #expect(!doctor.output.contains("the timestamp metadata expires soon"))
    }
}

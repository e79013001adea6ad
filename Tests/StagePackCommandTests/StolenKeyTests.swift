import StageModel
import StageSystem
import StageTesting
import StageTrust
import Testing

/// Attacks with a controlled server and some of the publisher's keys: `SECURITY.md`, "Signed manifests".
@Suite(.server, .directory)
struct StolenKeyTests {
    /// A world in which version 1 is staged, and version 2 is published if `isUpdated`.
    private func world(isUpdated: Bool = false) async throws -> SignedWorld {
        var world = try await SignedWorld()
        try world.publish(try .small(.aurora))
        try await world.succeed()
        if isUpdated {
            let packs = [try SamplePack.small(.aurora, version: 2)]
            try world.sign(packs)
        }
        return world
    }

    @Test func theKeyOfTheTimestampFreezes() async throws {
        var world = try await world(isUpdated: true)
        // The timestamp names the old snapshot for ever.
        world.repository.listedSnapshot = 2
        try world.repository.publish([.timestamp])
        world.serve()
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 1])
    }

    @Test func theKeyOfTheTimestampNamesNoOtherSnapshot() async throws {
        var world = try await world()
        world.repository.snapshot.signers = world.repository.timestamp.keys
        world.repository.targets["targets"]?.signers = world.repository.timestamp.keys
        try world.publish(try .small(.aurora, version: 9))
        try await world.refuse("version 3 of the snapshot metadata is not signed as version 1 of")
    }

    @Test func theKeysOfTimestampAndSnapshotChooseAmongSignedTargets() async throws {
        var world = try await world(isUpdated: true)
        // The old targets with a new snapshot.
        world.repository.listedTargets["targets"] = 2
        try world.repository.publish([.snapshot, .timestamp])
        world.serve()
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 1])
        world.repository.listedTargets["targets"] = 1
        try world.repository.publish([.snapshot, .timestamp])
        world.serve()
        try await world.refuse("goes back from version 2 to version 1 of the targets metadata")
    }

    @Test func theKeysOfTimestampAndSnapshotNameNoOtherTargets() async throws {
        var world = try await world()
        world.repository.targets["targets"]?.signers = world.repository.snapshot.keys
        try world.publish(try .small(.aurora, version: 9))
        try await world.refuse("version 3 of the targets metadata is not signed as version 1 of")
    }

    /// The snapshot lists digests, as `stagepack sign` writes it.
    @Test(arguments: [true, false])
    func theKeyOfTheTargetsAloneIsNothing(isNew: Bool) async throws {
        var world = try await SignedWorld()
        world.repository.listsDigests = true
        try world.publish(try .small(.aurora))
        if !isNew { try await world.succeed() }
        let pack = try SamplePack.small(.aurora, version: 9)
        world.repository.contents["targets"] = [
            "manifest.json": try world.world.manifest(of: [pack])
        ]
        // The forged manifest is published as the version that the snapshot names, and as the next one.
        world.repository.targets["targets"]?.version = 1
        try world.repository.publish([.targets])
        try world.repository.publish([.targets])
        world.serve([pack])
        if isNew {
            try await world.refuse(
                "'targets.json' is not what version 2 of the snapshot metadata describes"
            )
        } else {
            try await world.succeed()
            #expect(try world.installed.staged() == ["aurora": 1])
        }
    }

    @Test func theKeysOfAllRolesButTheRootLastUntilTheNextRoot() async throws {
        var world = try await world()
        let stolen = world.repository
        try world.publish(try .small(.aurora, version: 9))
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 9])
        world.repository.timestamp.keys = [try SigningKey()]
        world.repository.snapshot.keys = [try SigningKey()]
        world.repository.targets["targets"]?.keys = [try SigningKey()]
        try world.repository.publish([.root])
        try world.publish(try .small(.aurora, version: 10))
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 10])
        world.repository.timestamp.signers = stolen.timestamp.keys
        world.repository.snapshot.signers = stolen.snapshot.keys
        world.repository.targets["targets"]?.signers = stolen.targets["targets"]?.keys
        try world.publish(try .small(.aurora, version: 11))
        try await world.refuse("is not signed as version 2 of 'root' demands")
    }

    /// Below or at the threshold, which is two of three keys here.
    @Test(arguments: [1, 2])
    func theKeysOfTheRootAreEverythingFromTheThresholdOn(stolen: Int) async throws {
        var world = try await SignedWorld()
        let keys = try [SigningKey(), SigningKey(), SigningKey()]
        world.repository.root.signers = world.repository.root.keys + keys
        world.repository.root.keys = keys
        world.repository.root.threshold = 2
        try world.repository.publish([.root])
        try world.publish(try .small(.aurora))
        try await world.succeed()
        world.repository.root.signers = Array(keys.prefix(stolen))
        world.repository.timestamp.keys = [try SigningKey()]
        world.repository.snapshot.keys = [try SigningKey()]
        world.repository.targets["targets"]?.keys = [try SigningKey()]
        try world.repository.publish([.root])
        try world.publish(try .small(.aurora, version: 9))
        if stolen == 2 {
            try await world.succeed()
            #expect(try world.installed.staged() == ["aurora": 9])
        } else {
            try await world.refuse("version 3 of the root metadata is not signed as version 2 of")
        }
    }
}

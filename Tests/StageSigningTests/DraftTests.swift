import StageDigest
import StageModel
import StageSigning
import StageSystem
import StageTesting
import StageTrust
import SystemPackage
import Testing

/// Metadata that still lacks signatures.
@Suite(.directory)
struct DraftTests {
    @Test func aTimerKeepsWhatWaitsForSignatures() throws {
        let publisher = try Publisher()
        let (one, two, online) = (
            try Publisher.signer(), try Publisher.signer(), try Publisher.signer()
        )
        try publisher.write("one")
        var content = RootContent(one.key)
        content.roles[.targets] = .init(keys: [one.key, two.key], threshold: 2)
        content.roles[.snapshot]?.keys = [online.key]
        content.roles[.timestamp]?.keys = [online.key]
        _ = try publisher.run(one, two, online).initialize(content)
        try publisher.write("two")
        _ = try publisher.run(one).perform(.manifest)
        #expect(try publisher.names(in: "metadata.draft") == ["2.targets.json"])
        publisher.wait(days: 8)
        let renewed = try publisher.run(online).perform(SigningTasks())
        #expect(renewed.roles.map(\.version) == [1, 1, 2, 2])
        #expect(renewed.drafts.map(\.signed) == [[one.key.id]])
        #expect(try publisher.refreshClient() == "one")
        // A key that has nothing to sign changes nothing.
        let idle = try publisher.run(online).perform(.manifest)
        #expect(!idle.hasSigned)
        #expect(try publisher.names(in: "metadata.draft") == ["2.targets.json"])
        #expect(try publisher.run(two).perform(.manifest).drafts.first?.needed == 0)
        let done = try publisher.run(online).perform(SigningTasks())
        #expect(done.roles.map(\.version) == [1, 2, 3, 3])
        #expect(done.drafts.isEmpty)
        #expect(try publisher.refreshClient() == "two")
    }

    @Test func aTimerLeavesADraftOfAnotherManifest() throws {
        let publisher = try Publisher()
        let (key, online) = (try Publisher.signer(), try Publisher.signer())
        try publisher.write("one")
        var content = RootContent(key.key)
        content.roles[.snapshot]?.keys = [online.key]
        content.roles[.timestamp]?.keys = [online.key]
        _ = try publisher.run(key, online).initialize(content)
        try publisher.write("two")
        _ = try publisher.run(key).perform(.manifest)
        try publisher.write("three")
        publisher.wait(days: 8)
        #expect(try publisher.run(online).perform(SigningTasks()).isChanged)
        #expect(try publisher.refreshClient() == "one")
        #expect(try publisher.names(in: "metadata.draft") == ["2.targets.json"])
    }

    @Test func aRotationLeavesADraftOfAnotherManifest() throws {
        let publisher = try Publisher()
        let signers = try (0..<5).map { _ in try Publisher.signer() }
        let (root, one, two, three) = (signers[0], signers[1], signers[2], signers[3])
        let online = signers[4]
        try publisher.write("one")
        var content = RootContent(online.key)
        content.roles[.root]?.keys = [root.key]
        content.roles[.targets] = .init(keys: [one.key, two.key], threshold: 2)
        _ = try publisher.run(root, one, two, online).initialize(content)
        try publisher.write("two")
        _ = try publisher.run(one).perform(.manifest)
        // The key also signs the published manifest under the next root, which must not replace the draft.
        _ = try publisher.run(root, one).rotate { content throws(SigningError) in
            content.roles[.targets]?.keys = [one.key, three.key]
        }
        _ = try publisher.run(three).perform(.manifest)
        let done = try publisher.run(online).perform(.manifest)
        #expect(done.roles.map(\.version) == [2, 2, 2, 2])
        #expect(try publisher.refreshClient() == "two")
    }

    @Test func aManifestThatChangesDuringARotationIsSignedByItsNewKeys() throws {
        let publisher = try Publisher()
        let signers = try (0..<5).map { _ in try Publisher.signer() }
        let (root, one, two, three) = (signers[0], signers[1], signers[2], signers[3])
        let online = signers[4]
        try publisher.write("one")
        var content = RootContent(online.key)
        content.roles[.root]?.keys = [root.key]
        content.roles[.targets] = .init(keys: [one.key, two.key], threshold: 2)
        _ = try publisher.run(root, one, two, online).initialize(content)
        _ = try publisher.run(root).rotate { content throws(SigningError) in
            content.roles[.targets]?.keys = [two.key, three.key]
        }
        try publisher.write("two")
        #expect(try publisher.run(two).perform(.manifest).hasSigned)
        #expect(try publisher.refreshClient() == "one")
        let signed = try publisher.run(three).perform(.manifest)
        #expect(
            Set(signed.drafts.first { $0.role == .targets }?.signed ?? []) == [
                two.key.id, three.key.id,
            ]
        )
        let done = try publisher.run(online).perform(.manifest)
        #expect(done.roles.map(\.version) == [2, 2, 2, 2])
        #expect(done.drafts.isEmpty)
        #expect(try publisher.refreshClient() == "two")
    }

    @Test func aHolderWhoSignsForThePublishedRootHasSigned() throws {
        let publisher = try Publisher()
        let (one, two, three) = (
            try Publisher.signer(), try Publisher.signer(), try Publisher.signer()
        )
        try publisher.write("one")
        var content = RootContent(one.key, two.key)
        content.roles[.root]?.threshold = 2
        content.roles[.targets]?.threshold = 2
        _ = try publisher.run(one, two).initialize(content)
        // With half of the signatures, the published root still decides.
        _ = try publisher.run(two).rotate { content throws(SigningError) in
            content.roles[.targets]?.keys = [two.key, three.key]
        }
        try publisher.write("two")
        let report = try publisher.run(one).perform(.manifest)
        #expect(report.hasSigned)
        #expect(report.drafts.map(\.signed) == [[two.key.id], [one.key.id]])
        #expect(report.drafts.map(\.missing) == [[one.key.id], [two.key.id]])
    }

    @Test func expiredMetadataIsReportedAsExpired() throws {
        let publisher = try Publisher()
        let (key, online) = (try Publisher.signer(), try Publisher.signer())
        try publisher.write("one")
        var content = RootContent(key.key)
        content.roles[.snapshot]?.keys = [online.key]
        content.roles[.timestamp]?.keys = [online.key]
        _ = try publisher.run(key, online).initialize(content)
        publisher.wait(days: 200)
        let report = try publisher.run(online).perform(SigningTasks())
        #expect(report.roles.filter(\.isExpired).map(\.role) == [.targets])
    }

    /// A holder who signs late must not publish a root that clients refuse.
    @Test func aDraftOfARootNearExpiryRestarts() throws {
        let publisher = try Publisher()
        let (one, two) = (try Publisher.signer(), try Publisher.signer())
        try publisher.write("one")
        _ = try publisher.run(one).initialize(RootContent(one.key))
        _ = try publisher.run(one).rotate { content throws(SigningError) in
            content.periods[.root] = 30
            content.roles[.root] = .init(keys: [one.key, two.key], threshold: 2)
        }
        publisher.wait(days: 45)
        let late = try publisher.run(two).perform(.root)
        #expect(late.roles.first?.version == 1)
        #expect(late.drafts.map(\.signed) == [[two.key.id]])
        #expect(late.drafts.map(\.missing) == [[one.key.id]])
        #expect(try publisher.run(one).perform(.root).roles.first?.version == 2)
        publisher.wait(days: 19)
        _ = try publisher.run(one).perform(SigningTasks())
        #expect(try publisher.refreshClient() == "one")
    }

    /// The other holder may never sign.
    @Test func aRootIsRenewedWhileADraftOfTheNextOneWaits() throws {
        let publisher = try Publisher()
        let (one, two) = (try Publisher.signer(), try Publisher.signer())
        try publisher.write("one")
        _ = try publisher.run(one).initialize(RootContent(one.key))
        _ = try publisher.run(one).rotate { content throws(SigningError) in
            content.roles[.root] = .init(keys: [one.key, two.key], threshold: 2)
        }
        publisher.wait(days: 200)
        #expect(try publisher.run(one).perform(SigningTasks()).roles.first?.version == 1)
        publisher.wait(days: 70)
        let renewed = try publisher.run(one).perform(SigningTasks())
        #expect(renewed.roles.first?.version == 2)
        #expect(renewed.roles.first?.isNew == true)
        #expect(renewed.drafts.map(\.version) == [3])
        #expect(renewed.drafts.map(\.signed) == [[]])
        publisher.wait(days: 180)
        #expect(try publisher.run(one).perform(.manifest).roles.first?.version == 2)
        #expect(try publisher.refreshClient() == "one")
        _ = try publisher.run(one).perform(.root)
        let done = try publisher.run(two).perform(.root)
        #expect(done.roles.first?.version == 3)
        #expect(done.drafts.isEmpty)
        #expect(try publisher.refreshClient() == "one")
    }

    @Test func temporaryFilesOfKilledCommandsGo() throws {
        let publisher = try Publisher()
        let key = try Publisher.signer()
        try publisher.write("one")
        _ = try publisher.run(key).initialize(RootContent(key.key))
        let copy = ".\(Digest(of: [])).manifest.json.1a2b.tmp"
        let left = ["metadata/.2.snapshot.json.1a2b.tmp", copy]
        let others = [".page.1a2b.tmp", ".\(Digest(of: [])).other.json.1a2b.tmp"]
        for path in left + others {
            _ = try publisher.directory.file(creating: FilePath(path))
        }
        _ = try publisher.run(key).perform(.manifest)
        #expect(try left.compactMap { try publisher.bytes($0) } == [])
        #expect(try others.compactMap { try publisher.bytes($0) } == [[], []])
    }
}

import StageDigest
import StageModel
import StageSigning
import StageSystem
import StageTesting
import StageTrust
import SystemPackage
import Testing

@Suite(.directory)
struct RotationTests {
    @Test func aClientOfTheFirstRootFollowsAHundredRotations() throws {
        let publisher = try Publisher()
        let online = try Publisher.signer()
        var key = try Publisher.signer()
        try publisher.write("one")
        var content = RootContent(online.key)
        content.roles[.root]?.keys = [key.key]
        _ = try publisher.run(key, online).initialize(content)
        for _ in 0..<100 {
            let (old, new) = (key, try Publisher.signer())
            _ = try publisher.run(old, new).rotate { content throws(SigningError) in
                content.add(new.key, to: .root)
                try content.remove(keyWithID: old.key.id, from: .root)
            }
            key = new
        }
        let metadata = try publisher.refreshedMetadata()
        #expect(metadata.root.version == 101)
        #expect(metadata.root.keys(of: .root).keys.map(\.id) == [key.key.id])
        #expect(try publisher.refreshClient() == "one")
    }

    @Test func aRotationNeedsTheOldAndTheNewKeys() throws {
        let publisher = try Publisher()
        let (old, new) = (try Publisher.signer(), try Publisher.signer())
        try publisher.write("one")
        _ = try publisher.run(old).initialize(RootContent(old.key))
        _ = try publisher.refreshClient()
        let begun = try publisher.run(old).rotate { content throws(SigningError) in
            for role in SigningRole.allCases {
                content.add(new.key, to: role)
                try content.remove(keyWithID: String(old.key.id.prefix(8)), from: role)
            }
        }
        #expect(begun.drafts.first?.role == .root)
        #expect(begun.drafts.first?.missing == [new.key.id])
        #expect(try publisher.names().filter { $0.hasSuffix("root.json") } == ["1.root.json"])
        #expect(try publisher.refreshClient() == "one")
        let report = try publisher.run(new).perform(.root)
        #expect(report.roles.map(\.isNew) == [true, true, true, true])
        #expect(try publisher.refreshClient() == "one")
        #expect(throws: SigningError.self) { try publisher.run(old).perform(.manifest) }
    }

    @Test func aRootWaitsForTheRolesWhoseKeysItChanges() throws {
        let publisher = try Publisher()
        let (root, online, next) = (
            try Publisher.signer(), try Publisher.signer(), try Publisher.signer()
        )
        try publisher.write("one")
        var content = RootContent(root.key)
        content.roles[.timestamp]?.keys = [online.key]
        _ = try publisher.run(root, online).initialize(content)
        let waiting = try publisher.run(root).rotate { content throws(SigningError) in
            content.roles[.timestamp]?.keys = [next.key]
        }
        #expect(waiting.roles.first?.version == 1)
        #expect(waiting.drafts.map(\.role) == [.root, .timestamp])
        #expect(waiting.drafts.map(\.needed) == [0, 1])
        // Until then the old key remains valid.
        try publisher.write("two")
        #expect(try publisher.run(root, online).perform(.manifest).roles.first?.version == 1)
        #expect(try publisher.refreshClient() == "two")
        let done = try publisher.run(next).perform(SigningTasks())
        #expect(done.roles.map(\.version).first == 2)
        #expect(done.drafts.isEmpty)
        #expect(try publisher.refreshClient() == "two")
    }

    @Test func severalHoldersSignUnderANewRootOneAfterTheOther() throws {
        let publisher = try Publisher()
        let (one, two) = (try Publisher.signer(), try Publisher.signer())
        try publisher.write("one")
        _ = try publisher.run(one).initialize(RootContent(one.key))
        _ = try publisher.run(one).rotate { content throws(SigningError) in
            for role in SigningRole.allCases {
                content.roles[role] = .init(keys: [one.key, two.key], threshold: 2)
            }
        }
        var report = try publisher.run(two).perform(.root)
        #expect(try publisher.refreshClient() == "one")
        for _ in 0..<3 where !report.drafts.isEmpty {
            report = try publisher.run(one).perform(.root)
            #expect(try publisher.refreshClient() == "one")
            report = try publisher.run(two).perform(.root)
            #expect(try publisher.refreshClient() == "one")
        }
        #expect(report.drafts.isEmpty)
        #expect(report.roles.first?.version == 2)
    }

    @Test func aRoleThatCannotBeSignedIsRefused() throws {
        let publisher = try Publisher()
        let key = try Publisher.signer()
        try publisher.write("one")
        _ = try publisher.run(key).initialize(RootContent(key.key))
        #expect(throws: SigningError.threshold(role: .snapshot, threshold: 2, keys: 1)) {
            try publisher.run(key).rotate { content throws(SigningError) in
                content.roles[.snapshot]?.threshold = 2
            }
        }
        #expect(throws: SigningError.unknownKey(id: "")) {
            try publisher.run(key).rotate { content throws(SigningError) in
                try content.remove(keyWithID: "", from: .root)
            }
        }
        #expect(try publisher.names(in: "metadata.draft") == [])
    }
}

import StageDigest
import StageModel
import StageSigning
import StageSystem
import StageTesting
import StageTrust
import SystemPackage
import Testing

@Suite(.directory)
struct SigningRunTests {
    @Test(arguments: SignatureScheme.allCases)
    func aClientTrustsWhatOneKeySigned(scheme: SignatureScheme) throws {
        let publisher = try Publisher()
        let key = try Publisher.signer(scheme)
        try publisher.write("one")
        let first = try publisher.run(key).initialize(RootContent(key.key))
        #expect(first.roles.map(\.version) == [1, 1, 1, 1])
        #expect(first.drafts.isEmpty)
        #expect(try publisher.refreshClient() == "one")
        try publisher.write("two")
        #expect(try publisher.run(key).perform(.manifest).roles.map(\.version) == [1, 2, 2, 2])
        #expect(try publisher.refreshClient() == "two")
        let again = try publisher.run(key).perform(.manifest)
        #expect(!again.isChanged)
        #expect(again.roles.map(\.version) == [1, 2, 2, 2])
    }

    @Test func theManifestThatIsServedIsTheOneThatWasSigned() throws {
        let publisher = try Publisher()
        let key = try Publisher.signer()
        try publisher.write("one")
        _ = try publisher.run(key).initialize(RootContent(key.key))
        try publisher.write("two")
        #expect(try publisher.refreshClient() == "one")
        publisher.wait(days: 8)
        #expect(try publisher.run(key).perform(SigningTasks()).isChanged)
        #expect(try publisher.refreshClient() == "one")
    }

    @Test func metadataIsRenewedWhenHalfOfItsTimeIsOver() throws {
        let publisher = try Publisher()
        let key = try Publisher.signer()
        try publisher.write("one")
        _ = try publisher.run(key).initialize(RootContent(key.key))
        publisher.wait(days: 6)
        #expect(try !publisher.run(key).perform(SigningTasks()).isChanged)
        publisher.wait(days: 1)
        #expect(
            try publisher.run(key).perform(SigningTasks()).roles.map(\.version) == [1, 1, 2, 2]
        )
        // Metadata is renewed after two thirds of its time: 200 days for targets, 400 for root.
        publisher.wait(days: 127)
        #expect(
            try publisher.run(key).perform(SigningTasks()).roles.map(\.version) == [1, 2, 3, 3]
        )
        publisher.wait(days: 133)
        #expect(
            try publisher.run(key).perform(SigningTasks()).roles.map(\.version) == [2, 2, 4, 4]
        )
        #expect(try publisher.refreshClient() == "one")
        publisher.wait(days: 15)
        #expect(throws: TrustError.self) { try publisher.refreshClient() }
    }

    @Test func aRoleWithoutKeysIsReportedBeforeItExpires() throws {
        let publisher = try Publisher()
        let (root, online) = (try Publisher.signer(), try Publisher.signer())
        try publisher.write("one")
        var content = RootContent(root.key)
        content.roles[.snapshot]?.keys = [online.key]
        content.roles[.timestamp]?.keys = [online.key]
        _ = try publisher.run(root, online).initialize(content)
        publisher.wait(days: 134)
        let report = try publisher.run(online).perform(SigningTasks())
        #expect(report.roles.map(\.version) == [1, 1, 2, 2])
        #expect(report.roles.filter(\.isClose).map(\.role) == [.targets])
        #expect(try publisher.refreshClient() == "one")
    }

    @Test func nothingIsPublishedBelowTheThreshold() throws {
        let publisher = try Publisher()
        let (one, two, three) = (
            try Publisher.signer(), try Publisher.signer(), try Publisher.signer()
        )
        try publisher.write("one")
        var content = RootContent(one.key)
        content.roles[.root] = .init(keys: [one.key, two.key, three.key], threshold: 2)
        content.roles[.targets] = content.roles[.root]
        let begun = try publisher.run(one).initialize(content)
        #expect(begun.roles.isEmpty)
        #expect(begun.drafts.map(\.role) == [.root])
        #expect(begun.drafts.first?.needed == 1)
        #expect(begun.drafts.first?.missing == [two.key.id, three.key.id])
        #expect(try publisher.names() == [])
        let signed = try publisher.run(three).perform(.root)
        #expect(signed.drafts.map(\.role) == [.root, .targets])
        let published = try publisher.run(one).perform(.manifest)
        #expect(published.roles.map(\.version) == [1, 1, 1, 1])
        #expect(published.drafts.isEmpty)
        #expect(try publisher.names(in: "metadata.draft") == [])
        #expect(try publisher.refreshClient() == "one")
        // A change of the manifest needs signatures of two keys again, and is not published before.
        try publisher.write("two")
        #expect(try publisher.run(two).perform(.manifest).drafts.map(\.role) == [.targets])
        #expect(try publisher.refreshClient() == "one")
        #expect(try publisher.run(one).perform(.manifest).roles.map(\.version) == [1, 2, 2, 2])
        #expect(try publisher.refreshClient() == "two")
    }

    @Test func aKeyOfNoRoleIsRefused() throws {
        let publisher = try Publisher()
        let (key, other) = (try Publisher.signer(), try Publisher.signer())
        try publisher.write("one")
        #expect(
            throws: SigningError.noRoot(path: publisher.directory.path.pushing("metadata").string)
        ) { try publisher.run(key).perform(.manifest) }
        _ = try publisher.run(key).initialize(RootContent(key.key))
        #expect(
            throws: SigningError.noSigner(
                role: nil,
                expected: [key.key.id],
                given: [other.key.id]
            )
        ) { try publisher.run(other).perform(.manifest) }
        #expect(throws: SigningError.self) {
            try publisher.run(key).initialize(RootContent(key.key))
        }
    }

    @Test func unknownMembersAreKept() throws {
        let publisher = try Publisher()
        let key = try Publisher.signer()
        try publisher.write("one")
        _ = try publisher.run(key).initialize(RootContent(key.key))
        try publisher.edit("1.targets.json", signedBy: key) { text in
            text.replacing(
                #""manifest.json":{"#,
                with:
                    #""other":{"length":1,"hashes":{"sha256":"\#(String(repeating: "0", count: 64))"}},"#
                    + #""manifest.json":{"custom":{"note":"kept"},"#
            )
        }
        try publisher.write("two")
        _ = try publisher.run(key).perform(.manifest)
        let text = String(
            decoding: try #require(try publisher.bytes("metadata/2.targets.json")),
            as: UTF8.self
        )
        #expect(text.contains(#""custom":{"note":"kept"}"#))
        #expect(text.contains(#""other":{"#))
        #expect(try publisher.refreshClient() == "two")
    }

    @Test(arguments: ["COPY", "metadata/2.targets.json", "metadata/2.snapshot.json"])
    func aRunThatEndsHalfwayLeavesTheStateBefore(obstacle: String) throws {
        let publisher = try Publisher()
        let key = try Publisher.signer()
        try publisher.write("one")
        _ = try publisher.run(key).initialize(RootContent(key.key))
        try publisher.write("two")
        // A directory at the path of a file makes the run fail there, after it has written earlier files.
        let copy = "\(Digest(of: Array("two".utf8))).manifest.json"
        let path = FilePath(obstacle == "COPY" ? copy : obstacle)
        try publisher.directory.createDirectory(path)
        #expect(throws: SigningError.self) { try publisher.run(key).perform(.manifest) }
        #expect(try publisher.refreshClient() == "one")
        let name = try #require(path.lastComponent)
        let parent = path.removingLastComponent()
        let folder =
            parent.isEmpty
            ? publisher.directory : try #require(try publisher.directory.directory(parent))
        try folder.removeDirectory(name)
        #expect(try publisher.run(key).perform(.manifest).isChanged)
        #expect(try publisher.refreshClient() == "two")
    }

    @Test func supersededFilesAreRemovedAndThePreviousOnesStay() throws {
        let publisher = try Publisher()
        let key = try Publisher.signer()
        try publisher.write("v1")
        try publisher.directory.write([1], to: "other.manifest.json", durably: false)
        _ = try publisher.run(key).initialize(RootContent(key.key))
        for version in 2...5 {
            try publisher.write("v\(version)")
            _ = try publisher.run(key).perform(.manifest)
        }
        #expect(
            try publisher.names() == [
                "1.root.json", "4.snapshot.json", "4.targets.json", "5.snapshot.json",
                "5.targets.json", "timestamp.json",
            ]
        )
        let copies = ["v4", "v5"].map { "\(Digest(of: Array($0.utf8))).manifest.json" }
        #expect(
            try publisher.names(in: ".").filter { $0.hasSuffix(".json") }
                == (copies + ["manifest.json", "other.manifest.json"]).sorted()
        )
    }
}

extension Publisher {
    /// Changes a published file and signs it again, as another program may do.
    func edit(
        _ name: String,
        signedBy key: PrivateKeySigner,
        _ change: (String) -> String
    ) throws {
        let text = String(decoding: try #require(try bytes("metadata/\(name)")), as: UTF8.self)
        let prefix = #""signed":"#
        let changed = change(text)
        let start = try #require(changed.firstRange(of: prefix)?.upperBound)
        let signed = String(changed[start...].dropLast(2))
        let node = try JSONNode(json: Array(signed.utf8))
        let signature = try key.signature(
            of: try CanonicalJSON.bytes(of: node),
            subject: ""
        )
        let file =
            #"{"signatures":[{"keyid":"\#(key.key.id)","sig":"\#(signature.hexadecimal)"}],"signed":\#(signed)}"#
        let folder = try #require(try directory.directory("metadata"))
        try folder.write(
            Array(file.utf8),
            to: try #require(FilePath.Component(name)),
            durably: false
        )
    }
}

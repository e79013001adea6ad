import StageDigest
import StageModel
import StageTesting
import StageTrust
import Testing

/// The attacks in the specification, by mirrors and by holders of some keys.
@Suite struct AttackTests {
    // MARK: Arbitrary installation and endless data

    @Test func onlyTheListedContentIsATarget() throws {
        var repository = try TestRepository()
        repository.contents["targets"] = ["packs/manifest.json": Array("good".utf8)]
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        let target = try #require(try client.target("packs/manifest.json", in: repository))
        #expect(target.location == "packs/\(Array("good".utf8).sha256).manifest.json")
        try target.check(Array("good".utf8))
        let evil = Array("evil".utf8)
        let fault = ContentFault.digest(
            function: "sha256",
            expected: Array("good".utf8).sha256,
            found: evil.sha256
        )
        let metadata = MetadataVersion(role: .targets, version: 2)
        #expect(
            throws: TrustError.wrongContent("packs/manifest.json", fault, describedBy: metadata)
        ) { try target.check(evil) }
        #expect(
            throws: TrustError.wrongContent(
                "packs/manifest.json",
                .length(expected: ByteCount(4), found: ByteCount(5)),
                describedBy: metadata
            )
        ) { try target.check(Array("good!".utf8)) }
    }

    @Test(arguments: ["2.root.json", "timestamp.json", "1.snapshot.json", "1.targets.json"])
    func endlessFilesAreNotRead(path: String) throws {
        let repository = try TestRepository()
        var client = TestClient(root: repository.firstRoot)
        client.limits.rootLength = ByteCount(5000)
        client.limits.timestampLength = ByteCount(5000)
        client.limits.snapshotLength = ByteCount(5000)
        client.limits.targetsLength = ByteCount(5000)
        let endless = [UInt8](repeating: UInt8(ascii: " "), count: 5001)
        let fault = ContentFault.tooLong(limit: ByteCount(5000), found: ByteCount(5001))
        #expect(throws: TrustError.wrongContent(path, fault, describedBy: nil)) {
            try client.refresh { $0 == path ? endless : repository.files[$0] }
        }
    }

    // MARK: Rollback, freeze, mix and match

    @Test func aMirrorThatStoppedIsNoticedAtTheExpiryOfTheTimestamp() throws {
        var repository = try TestRepository()
        repository.timestamp.expiry = TestClient.now + .days(1)
        try repository.publish([.timestamp])
        var client = TestClient(root: repository.firstRoot)
        try client.refresh(from: repository)
        client.time = TestClient.now + .days(1)
        let expiry = TestClient.now + .days(1)
        #expect(throws: TrustError.expired(.timestamp, version: 2, expiry: expiry, time: expiry)) {
            try client.refresh(from: repository)
        }
        repository.timestamp.expiry = TestClient.now + .days(2)
        try repository.publish([.timestamp])
        try client.refresh(from: repository)
    }

    @Test func filesOfDifferentTimesAreNotAcceptedTogether() throws {
        var repository = try TestRepository()
        let old = repository.files["1.targets.json"]
        try repository.publish()
        repository.replace("2.targets.json", with: old)
        var client = TestClient(root: repository.firstRoot)
        #expect(throws: TrustError.wrongVersion(.targets, expected: 2, found: 1)) {
            try client.refresh(from: repository)
        }
    }

    @Test func storedFilesOfDifferentTimesAreNotAcceptedTogether() throws {
        var repository = try TestRepository()
        repository.listsDigests = true
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        try client.refresh(from: repository)
        // A file with the listed version, but other bytes than the timestamp lists.
        let listed = repository.files["2.snapshot.json"]
        repository.snapshot.version = 1
        repository.snapshot.expiry = TestClient.now + .days(60)
        try repository.publish([.snapshot])
        client.damage("snapshot.json", with: repository.files["2.snapshot.json"])
        repository.replace("2.snapshot.json", with: listed)
        try client.refresh(from: repository)
        #expect(client.stored["snapshot.json"] == listed)
    }

    // MARK: Fast-forward

    /// Stolen keys increased versions; new keys must be able to decrease them.
    @Test(arguments: ["timestamp", "snapshot", "targets"])
    func newKeysRecoverFromRaisedVersions(role: String) throws {
        var repository = try TestRepository()
        repository.timestamp.version = role == "timestamp" ? 1 << 52 : 1
        repository.snapshot.version = role == "snapshot" ? 1 << 52 : 1
        repository.targets["targets"]?.version = role == "targets" ? 1 << 52 : 1
        try repository.publish([.targets, .snapshot, .timestamp])
        var client = TestClient(root: repository.firstRoot)
        try client.refresh(from: repository)
        if role == "timestamp" { repository.timestamp.version = 1 }
        if role == "snapshot" { repository.snapshot.version = 1 }
        if role == "targets" { repository.targets["targets"]?.version = 1 }
        try repository.publish([.targets, .snapshot, .timestamp])
        #expect(throws: TrustError.self) { try client.refresh(from: repository) }
        repository.timestamp.keys = [try SigningKey()]
        repository.snapshot.keys = [try SigningKey()]
        try repository.publish()
        let metadata = try client.refresh(from: repository)
        #expect(metadata.timestamp.version == (role == "timestamp" ? 3 : 4))
        #expect(metadata.snapshot.version == (role == "snapshot" ? 3 : 4))
        #expect(metadata.targets.version == (role == "targets" ? 3 : 4))
        #expect(client.changes.prefix(3) == ["root.json", "-timestamp.json", "-snapshot.json"])
    }

    @Test(arguments: [RoleName.timestamp, .snapshot])
    func aRotatedKeyOfEitherRoleDropsBothFiles(role: RoleName) throws {
        var repository = try TestRepository()
        var client = TestClient(root: repository.firstRoot)
        try client.refresh(from: repository)
        if role == .timestamp { repository.timestamp.keys = [try SigningKey()] }
        if role == .snapshot { repository.snapshot.keys = [try SigningKey()] }
        try repository.publish([.root])
        #expect(throws: TrustError.self) { try client.refresh(from: repository) }
        #expect(client.changes.prefix(3) == ["root.json", "-timestamp.json", "-snapshot.json"])
    }

    @Test func aKeyThatIsAddedIsNoRotation() throws {
        var repository = try TestRepository()
        var client = TestClient(root: repository.firstRoot)
        try client.refresh(from: repository)
        repository.timestamp.keys.append(try SigningKey())
        try repository.publish([.root])
        try client.refresh(from: repository)
        #expect(client.changes == ["root.json"])
    }

    @Test func theGreatestVersionsAreNoOverflow() throws {
        var repository = try TestRepository()
        repository.root.version = (1 << 53) - 1
        try repository.publish([.root])
        let root = try #require(repository.files["\(1 << 53).root.json"])
        var client = TestClient(root: root)
        try client.refresh(from: repository)
        #expect(client.requests.first == "\((1 << 53) + 1).root.json")
    }

    // MARK: Keys

    /// Two keys of three are required to sign.
    @Test(arguments: [(3, true), (2, true), (1, false), (0, false)])
    func thresholdsSurviveLostKeys(signers: Int, isAccepted: Bool) throws {
        var repository = try TestRepository()
        let keys = [try SigningKey(), try SigningKey(.ecdsaP256), try SigningKey(.ecdsaP384)]
        repository.targets["targets"]?.keys = keys
        repository.targets["targets"]?.threshold = 2
        repository.targets["targets"]?.signers = Array(keys.prefix(signers))
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        if isAccepted {
            try client.refresh(from: repository)
        } else {
            let shortage = SignatureShortage.of(.root, 2, valid: signers, needed: 2)
            #expect(throws: TrustError.unsigned(.targets, version: 2, shortage)) {
                try client.refresh(from: repository)
            }
        }
    }

    @Test func oneKeyUnderTwoIdsCountsOnce() throws {
        var repository = try TestRepository()
        let key = try SigningKey()
        let twin = try key.twin("the same key")
        repository.timestamp.keys = [key]
        repository.timestamp.threshold = 2
        repository.extraKeys = [twin]
        repository.root.edit = { root in
            root["roles"]?["timestamp"]?["keyids"] = .array([.string(key.id), .string(twin.id)])
        }
        repository.timestamp.forge = { file in
            guard case .array(let signatures)? = file["signatures"],
                var copy = signatures.first
            else { return }
            copy["keyid"] = .string(twin.id)
            file["signatures"] = .array(signatures + [copy])
        }
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        let shortage = SignatureShortage.of(.root, 2, valid: 1, needed: 2)
        #expect(throws: TrustError.unsigned(.timestamp, version: 2, shortage)) {
            try client.refresh(from: repository)
        }
    }

    @Test func aKeyUnderAForeignIdDoesNotCount() throws {
        var repository = try TestRepository()
        let (trusted, foreign) = (try SigningKey(), try SigningKey())
        repository.timestamp.keys = [trusted]
        repository.timestamp.signers = [foreign]
        repository.root.edit = { $0["keys"]?[trusted.id] = foreign.tree }
        repository.timestamp.forge = { file in
            guard case .array(var signatures)? = file["signatures"] else { return }
            signatures[0]["keyid"] = .string(trusted.id)
            file["signatures"] = .array(signatures)
        }
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        var shortage = SignatureShortage.of(.root, 2, valid: 0, needed: 1)
        shortage.unusable = [trusted.id: "its id is not the digest of the key"]
        #expect(throws: TrustError.unsigned(.timestamp, version: 2, shortage)) {
            try client.refresh(from: repository)
        }
    }

    @Test func unknownKindsOfKeysAreNoObstacle() throws {
        var repository = try TestRepository()
        let unknown = JSONTree.object([
            .init("keytype", .string("ml-dsa")), .init("scheme", .string("ml-dsa-65")),
            .init("keyval", .object([.init("identity", .string("x"))])),
        ])
        let id = Digest(of: try unknown.canonicalBytes()).description
        repository.extraKeys = [(id, unknown)]
        let known = repository.timestamp.keys[0].id
        repository.root.edit = { root in
            root["roles"]?["timestamp"]?["keyids"] = .array([.string(id), .string(known)])
        }
        repository.timestamp.forge = { file in
            guard case .array(let signatures)? = file["signatures"] else { return }
            let other = JSONTree.object([
                .init("keyid", .string(id)), .init("sig", .string("00")),
            ])
            file["signatures"] = .array([other] + signatures)
        }
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        try client.refresh(from: repository)
    }

    @Test func aThousandRootsAreCaughtUpWith() throws {
        var repository = try TestRepository()
        for _ in 0..<999 {
            let next = try SigningKey()
            repository.root.signers = repository.root.keys + [next]
            repository.root.keys = [next]
            try repository.publish([.root])
        }
        var client = TestClient(root: repository.firstRoot)
        #expect(try client.refresh(from: repository).root.version == 1000)
        #expect(client.requests.count == 1003)
    }

    @Test func rootsBeyondTheLimitWaitForTheNextRefresh() throws {
        var repository = try TestRepository()
        for _ in 0..<5 { try repository.publish([.root]) }
        var client = TestClient(root: repository.firstRoot)
        client.limits.rootRotations = 3
        #expect(try client.refresh(from: repository).root.version == 4)
        #expect(try client.refresh(from: repository).root.version == 6)
    }

    // MARK: The clock

    @Test func aClockAYearAheadRefusesAndSaysWhy() throws {
        let repository = try TestRepository()
        var client = TestClient(root: repository.firstRoot)
        client.time = TestClient.now + .days(365)
        let error = TrustError.expired(
            .root,
            version: 1,
            expiry: TestClient.now + .days(30),
            time: client.time
        )
        #expect(throws: error) { try client.refresh(from: repository) }
        #expect(error.description.contains("expired at 2026-01-31T00:00:00Z"))
        #expect(error.description.contains("the time is 2027-01-01T00:00:00Z"))
        client.time = TestClient.now
        try client.refresh(from: repository)
    }

    @Test func aClockAYearBehindStillKeepsVersions() throws {
        var repository = try TestRepository()
        var client = TestClient(root: repository.firstRoot)
        client.time = TestClient.now - .days(365)
        try repository.publish()
        try client.refresh(from: repository)
        repository.timestamp.version = 0
        try repository.publish([.timestamp])
        let error = TrustError.rollback(.timestamp, trusted: 2, found: 1, lister: .timestamp)
        #expect(throws: error) { try client.refresh(from: repository) }
    }
}

extension [UInt8] {
    /// The SHA-256 digest in hexadecimal digits.
    var sha256: String { Digest(of: self).description }
}

import StageModel
import StageTesting
import StageTrust
import Testing

/// The rules of sections 5.3 to 5.6: each case changes a repository that a client already knows.
@Suite struct RefreshRuleTests {
    /// A change of a repository, and the expected result for the client.
    struct Case: CustomTestStringConvertible {
        let testDescription: String
        /// The error, or `nil` if the change is allowed.
        let error: TrustError?
        /// The versions that are stored afterwards: root, timestamp, snapshot and targets.
        let versions: [Int]
        let change: @Sendable (inout TestRepository) throws -> Void

        init(
            _ name: String,
            _ error: TrustError?,
            versions: [Int],
            change: @escaping @Sendable (inout TestRepository) throws -> Void
        ) {
            testDescription = name
            self.error = error
            self.versions = versions
            self.change = change
        }
    }

    static func expect(_ test: Case) throws {
        var repository = try TestRepository()
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        try client.refresh(from: repository)
        try test.change(&repository)
        var error: TrustError?
        do throws(TrustError) {
            try client.refresh(from: repository)
        } catch let caught {
            error = caught
        }
        #expect(error == test.error)
        let versions = try client.versions
        let found = ["root", "timestamp", "snapshot", "targets"].map { versions[$0] ?? 0 }
        #expect(found == test.versions)
    }

    static func stranger(_ role: RoleName, by version: Int) -> TrustError {
        .unsigned(role, version: 3, .of(.root, version, valid: 0, needed: 1))
    }

    static func expired(_ role: RoleName) -> TrustError {
        .expired(role, version: 3, expiry: TestClient.now, time: TestClient.now)
    }

    @Test(arguments: [
        Case("all roles anew", nil, versions: [3, 3, 3, 3]) { try $0.publish() },
        Case("a stranger's root", stranger(.root, by: 2), versions: [2, 2, 2, 2]) {
            $0.root.signers = [try SigningKey()]
            try $0.publish()
        },
        Case("a stranger's timestamp", stranger(.timestamp, by: 3), versions: [3, 2, 2, 2]) {
            $0.timestamp.signers = [try SigningKey()]
            try $0.publish()
        },
        Case("a stranger's snapshot", stranger(.snapshot, by: 3), versions: [3, 3, 2, 2]) {
            $0.snapshot.signers = [try SigningKey()]
            try $0.publish()
        },
        Case("a stranger's targets", stranger(.targets, by: 3), versions: [3, 3, 3, 2]) {
            $0.targets["targets"]?.signers = [try SigningKey()]
            try $0.publish()
        },
        Case(
            "a new root key that the old did not accept",
            stranger(.root, by: 2),
            versions: [2, 2, 2, 2]
        ) {
            $0.root.keys = [try SigningKey()]
            try $0.publish()
        },
        Case(
            "an old root key that the new does not accept",
            stranger(.root, by: 3),
            versions: [2, 2, 2, 2]
        ) {
            $0.root.signers = $0.root.keys
            $0.root.keys = [try SigningKey()]
            try $0.publish()
        },
        Case("a root rotated by both", nil, versions: [3, 2, 2, 2]) {
            let new = try SigningKey()
            $0.root.signers = $0.root.keys + [new]
            $0.root.keys = [new]
            try $0.publish([.root])
        },
    ])
    func signaturesOfTheRightKeysAreNeeded(test: Case) throws { try Self.expect(test) }

    @Test(arguments: [
        Case("root", expired(.root), versions: [3, 2, 2, 2]) {
            $0.root.expiry = TestClient.now
            try $0.publish()
        },
        Case("an intermediate root", nil, versions: [4, 2, 2, 2]) {
            $0.root.expiry = TestClient.now - .days(1)
            try $0.publish([.root])
            $0.root.expiry = TestClient.now + .seconds(1)
            try $0.publish([.root])
        },
        Case("timestamp", expired(.timestamp), versions: [3, 2, 2, 2]) {
            $0.timestamp.expiry = TestClient.now
            try $0.publish()
        },
        Case("snapshot", expired(.snapshot), versions: [3, 3, 2, 2]) {
            $0.snapshot.expiry = TestClient.now
            try $0.publish()
        },
        Case("targets", expired(.targets), versions: [3, 3, 3, 2]) {
            $0.targets["targets"]?.expiry = TestClient.now
            try $0.publish()
        },
        Case("a second before", nil, versions: [3, 3, 3, 3]) {
            $0.root.expiry = TestClient.now + .seconds(1)
            $0.timestamp.expiry = TestClient.now + .seconds(1)
            $0.snapshot.expiry = TestClient.now + .seconds(1)
            $0.targets["targets"]?.expiry = TestClient.now + .seconds(1)
            try $0.publish()
        },
    ])
    func expiredMetadataIsRefused(test: Case) throws { try Self.expect(test) }

    @Test(arguments: [
        Case(
            "a root that skips a version",
            .wrongVersion(.root, expected: 3, found: 4),
            versions: [2, 2, 2, 2]
        ) {
            $0.root.edit = { $0["version"] = .integer(4) }
            try $0.publish()
        },
        Case(
            "a root that repeats a version",
            .wrongVersion(.root, expected: 3, found: 2),
            versions: [2, 2, 2, 2]
        ) {
            $0.root.edit = { $0["version"] = .integer(2) }
            try $0.publish()
        },
        Case(
            "an earlier timestamp",
            .rollback(.timestamp, trusted: 2, found: 1, lister: .timestamp),
            versions: [2, 2, 2, 2]
        ) {
            $0.timestamp.version = 0
            try $0.publish([.timestamp])
        },
        Case(
            "an earlier snapshot",
            .rollback(.snapshot, trusted: 2, found: 1, lister: .timestamp),
            versions: [2, 2, 2, 2]
        ) {
            $0.listedSnapshot = 1
            try $0.publish([.timestamp])
        },
        Case(
            "earlier targets",
            .rollback(.targets, trusted: 2, found: 1, lister: .snapshot),
            versions: [2, 3, 2, 2]
        ) {
            $0.listedTargets["targets"] = 1
            try $0.publish([.snapshot, .timestamp])
        },
        Case(
            "a snapshot of another version",
            .wrongVersion(.snapshot, expected: 3, found: 9),
            versions: [2, 3, 2, 2]
        ) {
            $0.snapshot.edit = { $0["version"] = .integer(9) }
            try $0.publish([.snapshot, .timestamp])
        },
        Case(
            "targets of another version",
            .wrongVersion(.targets, expected: 3, found: 9),
            versions: [2, 3, 3, 2]
        ) {
            $0.targets["targets"]?.edit = { $0["version"] = .integer(9) }
            try $0.publish([.targets, .snapshot, .timestamp])
        },
    ])
    func versionsOnlyGrow(test: Case) throws { try Self.expect(test) }

    @Test(arguments: [
        Case(
            "a timestamp of another type",
            .malformed(
                .timestamp,
                .invalid(
                    member: "signed._type",
                    ValueError(expected: "'timestamp'", text: "snapshot")
                )
            ),
            versions: [2, 2, 2, 2]
        ) {
            $0.timestamp.edit = { $0["_type"] = .string("snapshot") }
            try $0.publish([.timestamp])
        },
        Case(
            "version 2 of the specification",
            .malformed(.timestamp, .unknownVersion(found: 2, known: 1)),
            versions: [2, 2, 2, 2]
        ) {
            $0.timestamp.edit = { $0["spec_version"] = .string("2.0.0") }
            try $0.publish([.timestamp])
        },
        Case("version 1.99 of the specification", nil, versions: [2, 3, 2, 2]) {
            $0.timestamp.edit = { $0["spec_version"] = .string("1.99") }
            try $0.publish([.timestamp])
        },
        Case("unknown members", nil, versions: [2, 3, 2, 2]) {
            $0.timestamp.edit = {
                $0["x-note"] = .array([.null, .boolean(true), .string("\"\\\n")])
            }
            try $0.publish([.timestamp])
        },
        Case(
            "a number that is no integer",
            .malformed(
                .timestamp,
                .invalid(
                    member: "signed.x-note",
                    ValueError(
                        expected: "an integer of 64 bits, as signed data has no other numbers",
                        found: "1.5"
                    )
                )
            ),
            versions: [2, 2, 2, 2]
        ) {
            $0.timestamp.forge = { $0["signed"]?["x-note"] = .number(1.5) }
            try $0.publish([.timestamp])
        },
        Case(
            "one key's signature twice",
            .malformed(
                .timestamp,
                .duplicate(member: "signatures[1].keyid", first: "signatures[0].keyid", value: "k")
            ),
            versions: [2, 2, 2, 2]
        ) {
            $0.timestamp.forge = { file in
                let signature = JSONTree.object([
                    .init("keyid", .string("k")), .init("sig", .string("")),
                ])
                file["signatures"] = .array([signature, signature])
            }
            try $0.publish([.timestamp])
        },
        Case("a second signature that is no hexadecimal text", nil, versions: [2, 3, 2, 2]) {
            $0.timestamp.forge = { file in
                guard case .array(let signatures)? = file["signatures"] else { return }
                let other = JSONTree.object([
                    .init("keyid", .string("k")), .init("sig", .string("?")),
                ])
                file["signatures"] = .array([other] + signatures)
            }
            try $0.publish([.timestamp])
        },
    ])
    func theFormatIsChecked(test: Case) throws { try Self.expect(test) }

    @Test func aSnapshotMustNotDropARole() throws {
        var repository = try TestRepository()
        repository.targets["packs"] = .init(keys: [try SigningKey()])
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        try client.refresh(from: repository)
        repository.listedTargets["packs"] = .some(nil)
        try repository.publish([.snapshot, .timestamp])
        #expect(throws: TrustError.removed(file: "packs.json", version: 3)) {
            try client.refresh(from: repository)
        }
        #expect(try client.versions["snapshot"] == 2)
    }

    @Test(arguments: [RoleName.snapshot, .targets], [true, false])
    func contentOtherThanListedIsRefused(role: RoleName, keepsLength: Bool) throws {
        var repository = try TestRepository()
        repository.listsDigests = true
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        let path = "2.\(role.fileName)"
        var bytes = try #require(repository.files[path])
        let listed = bytes
        if keepsLength {
            // A space instead of the closing brace: the file is refused before it is parsed.
            bytes[bytes.count - 1] = UInt8(ascii: " ")
        } else {
            bytes.removeLast()
        }
        repository.replace(path, with: bytes)
        let fault: ContentFault =
            keepsLength
            ? .digest(
                function: "sha256",
                expected: listed.sha256,
                found: bytes.sha256
            ) : .length(expected: ByteCount(listed.count), found: ByteCount(bytes.count))
        let metadata = MetadataVersion(role: role == .snapshot ? .timestamp : .snapshot, version: 2)
        #expect(throws: TrustError.wrongContent(role.fileName, fault, describedBy: metadata)) {
            try client.refresh(from: repository)
        }
    }
}

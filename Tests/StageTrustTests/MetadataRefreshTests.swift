import StageModel
import StageTesting
import StageTrust
import Testing

@Suite struct MetadataRefreshTests {
    @Test func aNewClientFetchesAndStoresEachFileOnce() throws {
        let repository = try TestRepository()
        var client = TestClient(root: repository.firstRoot)
        let metadata = try client.refresh(from: repository)
        #expect(
            client.requests == [
                "2.root.json", "timestamp.json", "1.snapshot.json", "1.targets.json",
            ]
        )
        #expect(client.changes == ["timestamp.json", "snapshot.json", "targets.json"])
        #expect(client.stored["targets.json"] == repository.files["1.targets.json"])
        #expect(metadata.expiry == TestClient.now + .days(30))
        #expect(try metadata.root == RootMetadata(trusted: repository.firstRoot))
        let keys = metadata.root.keys(of: .targets)
        #expect(keys.threshold == 1)
        #expect(keys.keys.map(\.id) == repository.targets["targets"]?.keys.map(\.id))
    }

    @Test func aRefreshWithoutNewsFetchesTwoFiles() throws {
        let repository = try TestRepository()
        var client = TestClient(root: repository.firstRoot)
        let first = try client.refresh(from: repository)
        let second = try client.refresh(from: repository)
        #expect(client.requests == ["2.root.json", "timestamp.json"])
        #expect(client.changes == [])
        #expect(first == second)
    }

    @Test func withoutConsistentSnapshotsNamesHaveNoVersions() throws {
        var repository = try TestRepository()
        repository.isConsistent = false
        repository.contents["targets"] = ["a/b c": [1]]
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        let target = try client.target("a/b c", in: repository)
        #expect(target?.location == "a/b%20c")
        try client.refresh(from: repository)
        client.damage("snapshot.json", with: nil)
        client.damage("targets.json", with: nil)
        try client.refresh(from: repository)
        #expect(
            client.requests == ["3.root.json", "timestamp.json", "snapshot.json", "targets.json"]
        )
    }

    @Test func lengthsNeverExceedTheListedOnes() throws {
        var repository = try TestRepository()
        repository.listsDigests = true
        try repository.publish()
        var refresh = try MetadataRefresh(
            from: StoredMetadata(root: repository.firstRoot),
            at: TestClient.now
        )
        var lengths: [String: Int64] = [:]
        while case .fetch(let file) = try refresh.nextFetch() {
            lengths[file.path] = file.maximumLength.rawValue
            if let bytes = repository.files[file.path] {
                refresh.accept(bytes)
            } else {
                refresh.notFound()
            }
        }
        let snapshot = repository.files["2.snapshot.json"]?.count ?? 0
        let targets = repository.files["2.targets.json"]?.count ?? 0
        #expect(
            lengths == [
                "2.root.json": 512 << 10, "3.root.json": 512 << 10, "timestamp.json": 16 << 10,
                "2.snapshot.json": Int64(snapshot), "2.targets.json": Int64(targets),
            ]
        )
    }

    @Test func aRootIsStoredBeforeLaterFilesAreFetched() throws {
        var repository = try TestRepository()
        try repository.publish()
        repository.replace("timestamp.json", with: nil)
        var client = TestClient(root: repository.firstRoot)
        let error = TrustError.missing(.timestamp, path: "timestamp.json")
        #expect(throws: error) { try client.refresh(from: repository) }
        #expect(client.changes == ["root.json"])
        #expect(try client.versions == ["root": 2])
    }

    @Test(arguments: ["1.snapshot.json", "1.targets.json"])
    func aMissingFileEndsTheRefresh(path: String) throws {
        var repository = try TestRepository()
        repository.replace(path, with: nil)
        var client = TestClient(root: repository.firstRoot)
        let role: RoleName = path.contains("snapshot") ? .snapshot : .targets
        #expect(throws: TrustError.missing(role, path: path)) {
            try client.refresh(from: repository)
        }
        try repository.publish([.targets, .snapshot, .timestamp])
        #expect(try client.refresh(from: repository).snapshot.version == 2)
    }

    @Test(arguments: ["timestamp.json", "snapshot.json", "targets.json"])
    func aStoredFileThatIsBrokenIsFetchedAgain(name: String) throws {
        let repository = try TestRepository()
        var client = TestClient(root: repository.firstRoot)
        try client.refresh(from: repository)
        let intact = client.stored[name]
        client.damage(name, with: Array("{".utf8))
        try client.refresh(from: repository)
        #expect(client.changes == [name])
        #expect(client.stored[name] == intact)
    }

    /// After a crash, the storage contains the changes up to that point.
    @Test func aRefreshThatEndsAnywhereIsFollowedByAnother() throws {
        var repository = try TestRepository()
        var client = TestClient(root: repository.firstRoot)
        try client.refresh(from: repository)
        repository.timestamp.keys = [try SigningKey()]
        repository.targets["targets"]?.keys = [try SigningKey()]
        try repository.publish()
        try repository.publish()
        for count in 0...8 {
            var crashed = client
            try crashed.crash(afterChanges: count, of: repository)
            #expect(crashed.changes.count == count)
            let metadata = try crashed.refresh(from: repository)
            #expect(metadata.root.version == 3)
            #expect(metadata.targets.version == 3)
            #expect(try crashed.versions["timestamp"] == 3)
        }
    }

    @Test(arguments: ["timestamp", "snapshot", "targets"])
    func aNewClientRefusesExpiredMetadata(role: String) throws {
        var repository = try TestRepository()
        let expiry = TestClient.now
        if role == "timestamp" { repository.timestamp.expiry = expiry }
        if role == "snapshot" { repository.snapshot.expiry = expiry }
        if role == "targets" { repository.targets["targets"]?.expiry = expiry }
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        #expect(throws: TrustError.self) { try client.refresh(from: repository) }
        #expect(client.stored["\(role).json"] == nil)
        client.time = expiry - .seconds(1)
        try client.refresh(from: repository)
    }

    @Test func aStoredFileThatTheRootNoLongerTrustsIsReplaced() throws {
        var repository = try TestRepository()
        var client = TestClient(root: repository.firstRoot)
        try client.refresh(from: repository)
        repository.targets["targets"]?.keys = [try SigningKey()]
        try repository.publish()
        try client.refresh(from: repository)
        #expect(
            client.changes == [
                "root.json", "-targets.json", "timestamp.json", "snapshot.json", "targets.json",
            ]
        )
    }

    @Test func theSameVersionWithOtherContentIsDiscarded() throws {
        var repository = try TestRepository()
        var client = TestClient(root: repository.firstRoot)
        try client.refresh(from: repository)
        repository.listedSnapshot = 100
        repository.timestamp.version = 0
        try repository.publish([.timestamp])
        #expect(try client.refresh(from: repository).snapshot.version == 1)
        #expect(client.changes == [])
    }

    @Test func storedMetadataIsVerifiedOffline() throws {
        let repository = try TestRepository()
        var client = TestClient(root: repository.firstRoot)
        let metadata = try client.refresh(from: repository)
        var stored = StoredMetadata(
            root: repository.firstRoot,
            timestamp: client.stored["timestamp.json"],
            snapshot: client.stored["snapshot.json"],
            targets: client.stored["targets.json"]
        )
        let offline = try TrustedMetadata(stored: stored)
        #expect(offline.targets == metadata.targets)
        #expect(offline.time == nil)
        stored.snapshot = nil
        #expect(throws: TrustError.missing(.snapshot, path: "snapshot.json")) {
            try TrustedMetadata(stored: stored)
        }
    }

    @Test(arguments: [RoleName.root, .timestamp, .snapshot, .targets])
    func storedMetadataThatHasExpiredIsRefusedOffline(role: RoleName) throws {
        var repository = try TestRepository()
        let expiry = TestClient.now
        switch role {
        case .root: repository.root.expiry = expiry
        case .timestamp: repository.timestamp.expiry = expiry
        case .snapshot: repository.snapshot.expiry = expiry
        default: repository.targets["targets"]?.expiry = expiry
        }
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        client.time = expiry - .seconds(1)
        try client.refresh(from: repository)
        let stored = StoredMetadata(
            root: try #require(client.stored["root.json"]),
            timestamp: client.stored["timestamp.json"],
            snapshot: client.stored["snapshot.json"],
            targets: client.stored["targets.json"]
        )
        #expect(try TrustedMetadata(stored: stored, at: client.time).expiry == expiry)
        let expired = TrustError.expired(role, version: 2, expiry: expiry, time: expiry)
        #expect(throws: expired) { try TrustedMetadata(stored: stored, at: expiry) }
    }

    @Test func aTrustedRootThatIsNotSignedByItselfIsRefused() throws {
        var repository = try TestRepository()
        repository.root.signers = [try SigningKey()]
        try repository.publish([.root])
        let root = try #require(repository.files["2.root.json"])
        #expect(throws: TrustError.unsigned(.root, version: 2, .of(.root, 2, valid: 0, needed: 1)))
        {
            try MetadataRefresh(from: StoredMetadata(root: root), at: TestClient.now)
        }
    }
}

extension MetadataRefresh {
    /// Returns the next step that does not concern storage.
    mutating func nextFetch() throws(TrustError) -> Step {
        while true {
            let step = try next()
            switch step {
            case .store, .remove: continue
            case .fetch, .done: return step
            }
        }
    }
}

extension SignatureShortage {
    /// Creates a shortage without unusable keys.
    static func of(
        _ delegator: RoleName,
        _ version: Int,
        valid: Int,
        needed: Int
    ) -> SignatureShortage {
        SignatureShortage(
            delegator: delegator,
            delegatorVersion: version,
            valid: valid,
            threshold: needed,
            unusable: [:]
        )
    }
}

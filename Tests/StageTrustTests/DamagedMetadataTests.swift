import StageModel
import StageTesting
import StageTrust
import Testing

@Suite struct DamagedMetadataTests {
    static let paths = ["2.root.json", "timestamp.json", "2.snapshot.json", "2.targets.json"]

    static func repository() throws -> TestRepository {
        var repository = try TestRepository()
        repository.contents["targets"] = ["packs/manifest.json": [1, 2, 3]]
        repository.targets["a"] = .init(keys: [try SigningKey()])
        repository.delegations["targets"] = [.init(role: "a")]
        try repository.publish()
        return repository
    }

    @Test(arguments: paths)
    func aCutFileIsNeverAccepted(path: String) throws {
        let repository = try Self.repository()
        let whole = try #require(repository.files[path])
        for count in 0..<whole.count {
            var client = TestClient(root: repository.firstRoot)
            let cut = Array(whole.prefix(count))
            #expect(throws: TrustError.self) {
                try client.refresh { $0 == path ? cut : repository.files[$0] }
            }
            #expect(!client.stored.values.contains(cut))
        }
    }

    /// A changed byte may only be accepted if no signed data depends on it.
    @Test(arguments: paths)
    func aChangedByteIsNeverTrusted(path: String) throws {
        let repository = try Self.repository()
        let whole = try #require(repository.files[path])
        var intact = TestClient(root: repository.firstRoot)
        let trusted = try intact.refresh(from: repository)
        for index in stride(from: 0, to: whole.count, by: 3) {
            var client = TestClient(root: repository.firstRoot)
            var changed = whole
            changed[index] ^= 1
            let found = try? client.refresh { $0 == path ? changed : repository.files[$0] }
            // One example is hexadecimal digits of a signature in the other case.
            #expect(found == nil || found == trusted)
        }
    }

    /// A mirror serves any mixture of all files that were ever published.
    @Test(arguments: 0..<12)
    func noMirrorCanLowerVersions(seed: Int) throws {
        var random = SeededGenerator(state: UInt64(seed))
        var repository = try TestRepository()
        var history: [TestRepository] = []
        var client = TestClient(root: repository.firstRoot)
        var highest: [String: Int] = [:]
        for _ in 0..<30 {
            history.append(repository)
            let roles = [RoleName.root, .targets, .snapshot, .timestamp]
            let published = roles.filter { _ in Bool.random(using: &random) }
            repository.listsDigests = Bool.random(using: &random)
            try repository.publish(published)
            var served: [String: TestRepository] = [:]
            let metadata = try? client.refresh { path in
                let time = served[path] ?? history.randomElement(using: &random) ?? repository
                served[path] = time
                return Bool.random(using: &random) ? time.files[path] : repository.files[path]
            }
            let versions = try client.versions
            for (role, version) in versions {
                #expect(version >= highest[role] ?? 0)
                highest[role] = version
            }
            if let metadata {
                #expect(metadata.timestamp.version == versions["timestamp"])
                #expect(metadata.snapshot.version == versions["snapshot"])
                #expect(metadata.targets.version == versions["targets"])
            }
        }
        // An honest mirror finds a working client afterwards.
        try repository.publish()
        #expect(try client.refresh(from: repository).targets.version == client.versions["targets"])
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): reproducible numbers.
struct SeededGenerator: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var value = state
        value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
        value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
        return value ^ (value >> 31)
    }
}

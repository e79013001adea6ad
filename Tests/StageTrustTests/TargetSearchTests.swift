import StageModel
import StageTesting
import StageTrust
import Testing

@Suite struct TargetSearchTests {
    /// A delegation in a table: delegator, delegated role, and paths.
    typealias Edge = (from: String, to: String, paths: [String], isTerminating: Bool)

    static func repository(_ edges: [Edge]) throws -> TestRepository {
        var repository = try TestRepository()
        for edge in edges {
            if repository.targets[edge.to] == nil {
                repository.targets[edge.to] = .init(keys: [try SigningKey()])
            }
            repository.delegations[edge.from, default: []].append(
                .init(role: edge.to, paths: edge.paths, isTerminating: edge.isTerminating)
            )
        }
        try repository.publish()
        return repository
    }

    @Test(
        arguments: [
            ([("targets", "a", ["*"], false), ("targets", "b", ["*"], false)], ["a", "b"]),
            (
                [
                    ("targets", "a", ["*"], false), ("targets", "b", ["*"], false),
                    ("a", "c", ["*"], false), ("c", "d", ["*"], false),
                ], ["a", "c", "d", "b"]
            ),
            (
                [
                    ("targets", "a", ["*"], true), ("targets", "b", ["*"], false),
                    ("a", "c", ["*"], false),
                ], ["a", "c"]
            ),
            (
                [
                    ("targets", "a", ["*"], false), ("targets", "b", ["*"], false),
                    ("a", "c", ["*"], true),
                ], ["a", "c"]
            ),
            (
                [
                    ("targets", "a", ["x*"], true), ("targets", "b", ["*"], false),
                ], ["b"]
            ),
            // Cycles: each role is visited once.
            (
                [
                    ("targets", "a", ["*"], false), ("a", "b", ["*"], false),
                    ("b", "a", ["*"], false), ("b", "b", ["*"], false),
                ], ["a", "b"]
            ),
        ] as [([Edge], [String])]
    )
    func rolesAreVisitedInPreOrder(edges: [Edge], visited: [String]) throws {
        let repository = try Self.repository(edges)
        var client = TestClient(root: repository.firstRoot)
        #expect(try client.target("missing", in: repository) == nil)
        #expect(client.requests == visited.map { "1.\($0).json" })
    }

    @Test func theFirstRoleInOrderDecides() throws {
        var repository = try Self.repository([
            ("targets", "a", ["x"], false), ("targets", "b", ["*"], false),
        ])
        repository.contents = ["a": ["y": [1]], "b": ["x": [2], "y": [3]]]
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        let x = try #require(try client.target("x", in: repository))
        #expect(x.role.text == "b")
        // 'a' also names 'y', but is not trusted for it.
        let y = try #require(try client.target("y", in: repository))
        #expect(y.role.text == "b")
        #expect(client.requests == [])
        try y.check([3])
    }

    @Test(arguments: [
        ("*", "a", true), ("*", "a/b", false), ("*/*", "a/b", true), ("a/*", "a/", true),
        ("?", "a", true), ("?", "", false), ("a?c", "a/c", false), ("*.md", "README.md", true),
        ("*.md", "README.MD", false), ("a*b*c", "aXbYc", true), ("a*b*c", "aXbY", false),
        ("[ab]", "b", true), ("[!ab]", "b", false), ("[!ab]", "c", true), ("[a-c]x", "bx", true),
        ("[]]", "]", true), ("[", "[", true), ("[a", "[a", true), ("[a-]", "-", true),
        ("é", "é", true), ("é", "e\u{301}", false), ("?", "é", true), ("**", "abc", true),
        ("packs/*/index", "packs/aurora/index", true), ("packs/*", "packs/a/b", false),
        ("[]", "[]", true), ("[!]", "[!]", true), ("[[]", "[", true), ("[[a]", "a", true),
        ("*[", "a[[", true), ("[a]*[b", "ax[b", true), ("[a]*[b", "axb", false),
        ("[a*]", "*", true), ("[]a][", "][", true),
        ("a*a*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
    ])
    func patternsMatchLikeTheShell(pattern: String, path: String, matches: Bool) throws {
        var repository = try Self.repository([("targets", "a", [pattern], false)])
        repository.contents["a"] = [path: [1]]
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        #expect((try client.target(path, in: repository) != nil) == matches)
    }

    /// With a search for the bracket at each match, the time would be in the square of the pattern's length.
    @Test(.timeLimit(.minutes(5)))
    func bracketsThatAreNotClosedCostNoSearchAtEachMatch() throws {
        let rest = String(repeating: "[", count: 30_000)
        let pattern = "*" + String(repeating: "[", count: 500) + "x" + rest
        let repository = try Self.repository([("targets", "a", [pattern], false)])
        var client = TestClient(root: repository.firstRoot)
        let path = String(repeating: "[", count: 1000)
        #expect(try client.target(path, in: repository) == nil)
        #expect(client.requests == [])
    }

    @Test func pathsAreComparedByTheirBytes() throws {
        var repository = try TestRepository()
        repository.contents["targets"] = ["\u{E9}": [1]]
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        #expect(try client.target("\u{E9}", in: repository) != nil)
        #expect(try client.target("e\u{301}", in: repository) == nil)
    }

    @Test(arguments: [("", true), ("ba", true), ("BA78", true), ("bb", false)])
    func digestPrefixesSelectBins(prefix: String, matches: Bool) throws {
        var repository = try Self.repository([("targets", "bin", [], false)])
        repository.delegations["targets"]?[0].prefixes = ["ffff", prefix]
        // The SHA-256 of 'abc' begins with ba7816bf.
        repository.contents["bin"] = ["abc": [1]]
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        #expect((try client.target("abc", in: repository) != nil) == matches)
    }

    @Test func aSearchEndsAtTheLimitOnRoles() throws {
        var edges: [Edge] = []
        for index in 0..<40 {
            edges.append((index == 0 ? "targets" : "r\(index - 1)", "r\(index)", ["*"], false))
        }
        let repository = try Self.repository(edges)
        var client = TestClient(root: repository.firstRoot)
        #expect(throws: TrustError.tooManyRoles(target: "x", limit: 32)) {
            try client.target("x", in: repository)
        }
        #expect(client.requests.count == 31)
    }

    /// A server sends more bytes than requested: more than the limit, or more than the snapshot lists.
    @Test(arguments: [false, true]) func aLongDelegatedRoleIsNotRead(isListed: Bool) throws {
        var repository = try Self.repository([("targets", "a", ["*"], false)])
        repository.listsDigests = isListed
        try repository.publish()
        let file = try #require(repository.files["2.a.json"])
        let length = 5001
        repository.replace("2.a.json", with: file.padded(to: length))
        var client = TestClient(root: repository.firstRoot)
        client.limits.targetsLength = ByteCount(5000)
        let fault = ContentFault.tooLong(
            limit: ByteCount(isListed ? file.count : 5000),
            found: ByteCount(length)
        )
        #expect(throws: TrustError.wrongContent("2.a.json", fault, describedBy: nil)) {
            try client.target("x", in: repository)
        }
        #expect(client.stored["a.json"] == nil)
    }

    @Test func aLongStoredRoleCountsAsMissing() throws {
        let repository = try Self.repository([("targets", "a", ["*"], false)])
        var client = TestClient(root: repository.firstRoot)
        _ = try client.target("x", in: repository)
        let file = try #require(client.stored["a.json"])
        client.damage("a.json", with: file.padded(to: 5001))
        client.limits.targetsLength = ByteCount(5000)
        _ = try client.target("x", in: repository)
        #expect(client.requests == ["1.a.json"])
        #expect(client.stored["a.json"] == file)
    }

    @Test func aRoleIsVerifiedAgainstEachDelegator() throws {
        var repository = try Self.repository([
            ("targets", "a", ["a/*"], false), ("targets", "b", ["b/*"], false),
            ("a", "release", ["a/*"], false), ("b", "release", ["b/*"], false),
        ])
        repository.contents["release"] = ["a/x": [1], "b/x": [2]]
        // From now on 'b' lists a key for 'release' that does not sign.
        try repository.publish()
        let other = try SigningKey()
        let tree = JSONTree.object([.init(other.id, other.tree)])
        repository.targets["b"]?.edit = { signed in
            signed["delegations"]?["keys"] = tree
            guard case .array(var roles)? = signed["delegations"]?["roles"] else { return }
            roles[0]["keyids"] = .array([.string(other.id)])
            signed["delegations"]?["roles"] = .array(roles)
        }
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        #expect(try client.target("a/x", in: repository)?.role.text == "release")
        let delegator = try RoleName(delegated: "b")
        let shortage = SignatureShortage.of(delegator, 3, valid: 0, needed: 1)
        let role = try RoleName(delegated: "release")
        #expect(throws: TrustError.unsigned(role, version: 3, shortage)) {
            try client.target("b/x", in: repository)
        }
    }

    @Test func aRoleThatTheSnapshotDoesNotListIsNotFetched() throws {
        var repository = try Self.repository([("targets", "a", ["*"], false)])
        repository.listedTargets["a"] = .some(nil)
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        let role = try RoleName(delegated: "a")
        #expect(throws: TrustError.unlisted(role, delegator: .targets)) {
            try client.target("x", in: repository)
        }
        #expect(client.requests == [])
    }

    @Test func delegatedMetadataThatIsMissingOrExpiredEndsTheSearch() throws {
        var repository = try Self.repository([("targets", "a", ["*"], false)])
        var client = TestClient(root: repository.firstRoot)
        let role = try RoleName(delegated: "a")
        let file = repository.files["1.a.json"]
        repository.replace("1.a.json", with: nil)
        #expect(throws: TrustError.missing(role, path: "1.a.json")) {
            try client.target("x", in: repository)
        }
        repository.replace("1.a.json", with: file)
        _ = try client.target("x", in: repository)
        repository.targets["a"]?.expiry = TestClient.now
        try repository.publish()
        let error = TrustError.expired(
            role,
            version: 2,
            expiry: TestClient.now,
            time: TestClient.now
        )
        #expect(throws: error) { try client.target("x", in: repository) }
    }

    @Test(arguments: ["../up", "/absolute", "a b?#%", ".", "..", "ü"])
    func namesOfRolesAreSafeFileNames(name: String) throws {
        let repository = try Self.repository([("targets", name, ["*"], false)])
        var client = TestClient(root: repository.firstRoot)
        #expect(try client.target("x", in: repository) == nil)
        let fileName = try RoleName(delegated: name).fileName
        #expect(client.stored[fileName] != nil)
        #expect(!fileName.contains("/"))
        #expect(fileName.utf8.allSatisfy { (0x21..<0x7F).contains($0) })
    }

    @Test(arguments: [
        "", "root", "timestamp", "snapshot", "targets", String(repeating: "a", count: 201),
    ])
    func namesOfDelegatedRolesHaveRules(name: String) {
        #expect(throws: ValueError.self) { try RoleName(delegated: name) }
    }
}

extension [UInt8] {
    /// Returns a JSON document of `length` bytes, padded with spaces.
    fileprivate func padded(to length: Int) -> Self {
        self + [UInt8](repeating: UInt8(ascii: " "), count: length - count)
    }
}

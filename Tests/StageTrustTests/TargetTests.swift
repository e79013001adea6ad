import StageDigest
import StageModel
import StageTesting
import StageTrust
import Testing

@Suite struct TargetTests {
    static let content = Array("content".utf8)

    /// The target 'dir/file' whose metadata lists the digests.
    static func target(_ digests: [(String, String)]) throws -> Target {
        var repository = try TestRepository()
        repository.contents["targets"] = ["dir/file": content]
        repository.targets["targets"]?.edit = { signed in
            let members = digests.map { JSONTree.Member($0.0, .string($0.1)) }
            signed["targets"]?["dir/file"]?["hashes"] = .object(members)
        }
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        return try #require(try client.target("dir/file", in: repository))
    }

    private static func wrongContent(_ fault: ContentFault) -> TrustError {
        let metadata = MetadataVersion(role: .targets, version: 2)
        return .wrongContent("dir/file", fault, describedBy: metadata)
    }

    static func digest(_ function: HashFunction) -> String {
        ContentDigest(of: content, using: function).hexadecimal
    }

    @Test(arguments: HashFunction.allCases)
    func eachHashFunctionSuffices(function: HashFunction) throws {
        let digest = Self.digest(function)
        let target = try Self.target([("md5", "00"), (function.rawValue, digest)])
        #expect(target.location == "dir/\(digest).file")
        #expect(target.digests.unknown == ["md5"])
        #expect(target.digests.known.map(\.function) == [function])
        try target.check(Self.content)
        let fault = ContentFault.digest(
            function: function.rawValue,
            expected: digest,
            found: ContentDigest(of: Array("CONTENT".utf8), using: function).hexadecimal
        )
        #expect(throws: Self.wrongContent(fault)) {
            try target.check(Array("CONTENT".utf8))
        }
    }

    @Test func allListedDigestsHaveToMatch() throws {
        let wrong = String(repeating: "0", count: 128)
        let target = try Self.target([("sha256", Self.digest(.sha256)), ("sha512", wrong)])
        let fault = ContentFault.digest(
            function: "sha512",
            expected: wrong,
            found: Self.digest(.sha512)
        )
        #expect(throws: Self.wrongContent(fault)) {
            try target.check(Self.content)
        }
    }

    @Test func contentWithoutAKnownDigestIsRefused() throws {
        let target = try Self.target([("md5", "00"), ("blake2b", "00")])
        #expect(target.location == "dir/file")
        guard
            case .wrongContent("dir/file", .unknownHashFunctions(let names), _)? =
                #expect(throws: TrustError.self, performing: { try target.check(Self.content) })
        else { return }
        #expect(names.sorted() == ["blake2b", "md5"])
    }

    @Test(
        arguments: [
            (
                [("sha256", "00")], ".sha256",
                ValueError(expected: "64 hexadecimal digits", text: "00")
            ),
            ([], "", ValueError(expected: "at least one digest", found: "none")),
        ] as [([(String, String)], String, ValueError)]
    )
    func digestsAreCheckedWhenMetadataIsRead(
        digests: [(String, String)],
        member: String,
        error: ValueError
    ) {
        let path = "signed.targets.dir/file.hashes\(member)"
        #expect(throws: TrustError.malformed(.targets, .invalid(member: path, error))) {
            try Self.target(digests)
        }
    }
}

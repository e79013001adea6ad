import StageModel
import StagePublish
import Testing

@Suite struct ManifestLintTests {
    @Test func aSoundManifestHasNoFindings() throws {
        #expect(ManifestLint.findings(in: try manifest([pack("a"), pack("b", digit: 2)])).isEmpty)
    }

    @Test func anErrorIsTheOnlyFinding() {
        let finding = LintFinding(
            severity: .error,
            member: "manifestVersion",
            message: "expected a whole number, found nothing"
        )
        #expect(ManifestLint.findings(in: Array("{}".utf8)) == [finding])
        #expect(
            finding.description
                == "error: manifestVersion: expected a whole number, found nothing"
        )
    }

    @Test func probablyUnintendedMembersAreFound() throws {
        func changed(_ change: (inout Pack) -> Void) throws -> [String] {
            var pack = try pack("a")
            change(&pack)
            return members(try manifest([pack]))
        }
        #expect(try changed { $0.archive?.format = .tarXZ } == ["packs[0].archive.format"])
        #expect(try changed { $0.archive?.url = "a.tzst?x=.zip" } == [])
        #expect(try changed { $0.archive?.url = "a" } == [])
        #expect(
            try changed { $0.archive?.url = "HTTP://h/a" } == ["baseURLs", "packs[0].archive.url"]
        )
        #expect(try changed { $0.fileCount = 0 } == ["packs[0].fileCount"])
        #expect(try changed { $0.installedSize = .zero } == ["packs[0].installedSize"])
        #expect(try changed { $0.policy = .essential([]) } == ["packs[0].policy"])
        #expect(try changed { $0.policy = .onDemand } == [])
        #expect(try changed { $0.archive?.size = ManifestLint.essentialSize } == [])
        #expect(
            try changed { $0.archive?.size = ManifestLint.essentialSize + ByteCount(1) }
                == ["packs"]
        )
        #expect(members(try manifest([])) == ["packs"])
    }

    @Test func repetitionsAreFound() throws {
        let twins = try manifest([pack("a"), pack("A", digit: 2), pack("b")])
        #expect(
            ManifestLint.findings(in: twins) == [
                LintFinding(
                    severity: .warning,
                    member: "packs[1].id",
                    message: "'A' differs only by case from 'a' of packs[0].id"
                ),
                LintFinding(
                    severity: .warning,
                    member: "packs[2].archive.sha256",
                    message: "the archive is the same as packs[0].archive"
                ),
            ]
        )
    }

    @Test func baseURLsAreJudged() throws {
        let urls = ["http://h/a/", "https://h/a", "https://h/a/?b"]
        #expect(
            members(try manifest([pack("a")], baseURLs: urls)) == ["baseURLs[0]", "baseURLs[1]"]
        )
    }

    private func members(_ json: [UInt8]) -> [String] {
        ManifestLint.findings(in: json).map(\.member)
    }

    private func manifest(_ packs: [Pack], baseURLs: [String] = ["https://h/"]) throws -> [UInt8] {
        Manifest(
            application: try ApplicationID("a"),
            revision: 1,
            baseURLs: baseURLs,
            packs: packs
        ).json()
    }

    private func pack(_ id: String, digit: Int = 1) throws -> Pack {
        Pack(
            id: try PackID(id),
            version: 1,
            policy: .essential([.firstInstallation]),
            archive: PackArchive(
                url: "\(id).tar.zst",
                format: .tarZstandard,
                size: ByteCount(10),
                digest: try Digest(hexadecimal: String(repeating: "\(digit)", count: 64))
            ),
            installedSize: ByteCount(20),
            fileCount: 1
        )
    }
}

import StageDigest
import StageModel
import StageTesting
import StageTrust
import Testing

@Suite struct TrustErrorTests {
    static let time = TestClient.now

    @Test(
        arguments: [
            (
                .malformed(.root, .notJSON("line 1, column 1: expected a value, found the end")),
                "the root metadata cannot be read: not JSON: line 1, column 1: "
                    + "expected a value, found the end"
            ),
            (
                .unsigned(
                    .targets,
                    version: 7,
                    SignatureShortage(
                        delegator: .root,
                        delegatorVersion: 3,
                        valid: 1,
                        threshold: 2,
                        unusable: ["0123456789ab": KeyError.rsaSize(bits: 1024).description]
                    )
                ),
                "version 7 of the targets metadata is not signed as version 3 of 'root' demands: "
                    + "expected valid signatures by 2 keys, found 1; key 01234567…: "
                    + "expected an RSA key of 2048 to 8192 bits, found 1024"
            ),
            (
                .expired(.timestamp, version: 9, expiry: time, time: time + .days(1)),
                "version 9 of the timestamp metadata expired at 2026-01-01T00:00:00Z, and the time is "
                    + "2026-01-02T00:00:00Z: the repository was not renewed, an old copy is served, "
                    + "or the clock is wrong"
            ),
            (
                .wrongVersion(.snapshot, expected: 4, found: 3),
                "expected version 4 of the snapshot metadata, found version 3"
            ),
            (
                .rollback(.targets, trusted: 5, found: 4, lister: .snapshot),
                "the snapshot metadata goes back from version 5 to version 4 of the targets metadata"
            ),
            (
                .rollback(.timestamp, trusted: 5, found: 4, lister: .timestamp),
                "the timestamp metadata goes back from version 5 to version 4"
            ),
            (
                .removed(file: "packs.json", version: 8),
                "version 8 of the snapshot metadata no longer lists 'packs.json'"
            ),
            (
                .wrongContent(
                    "a",
                    .tooLong(limit: ByteCount(9), found: ByteCount(10)),
                    describedBy: nil
                ),
                "'a' is too long: expected at most 9 bytes, found 10"
            ),
            (
                .wrongContent(
                    "a",
                    .unknownHashFunctions(["md5", "crc\u{1B}"]),
                    describedBy: MetadataVersion(role: .targets, version: 3)
                ),
                "'a' is not what version 3 of the targets metadata describes: "
                    + "expected a digest by sha256 or sha512, found only 'md5', 'crc\\u{1b}'"
            ),
            (
                .missing(.snapshot, path: "4.snapshot.json"),
                "the repository does not have '4.snapshot.json', the snapshot metadata"
            ),
            (
                .tooManyRoles(target: "x", limit: 32),
                "'x' is not in the first 32 roles that may list it"
            ),
        ] as [(TrustError, String)]
    )
    func errorsSayWhatIsWrong(error: TrustError, text: String) {
        #expect(error.description == text)
    }

    @Test func anUnlistedRoleNamesItsDelegator() throws {
        let error = TrustError.unlisted(try RoleName(delegated: "a\nb"), delegator: .targets)
        #expect(
            error.description
                == "'targets' delegates to 'a\\u{a}b', which the snapshot metadata does not list"
        )
    }
}

import StageModel
import Testing

@Suite struct ManifestJSONTests {
    @Test func everyMemberIsRead() throws {
        #expect(try Manifest(json: Array(Sample.manifest.utf8)) == Sample.expected())
    }

    @Test func optionalMembersMayBeAbsentOrNull() throws {
        let text = """
            {"manifestVersion": 1, "application": "a", "revision": 0, "requires": null,
             "baseURLs": null, "packs": []}
            """
        let expected = Manifest(application: try ApplicationID("a"), revision: 0, packs: [])
        #expect(try Manifest(json: Array(text.utf8)) == expected)
        let short = #"{"manifestVersion": 1, "application": "a", "revision": 0, "packs": []}"#
        #expect(try Manifest(json: Array(short.utf8)) == expected)
    }

    @Test(arguments: [
        (#""version": 7, "#, "", "packs[0].version: expected a whole number, found nothing"),
        (
            #""version": 7"#, #""version": "7""#,
            "packs[0].version: expected a whole number, found a string"
        ),
        (
            #""version": 7"#, #""version": 1.5"#,
            "packs[0].version: expected a whole number, found 1.5"
        ),
        (
            #""version": 7"#, #""version": 0"#,
            "packs[0].version: expected a whole number of 1 or more, found 0"
        ),
        (
            #""revision": 42"#, #""revision": -1"#,
            "revision: expected a whole number of 0 or more, found -1"
        ),
        (
            "\"sha256\": \"\(Sample.digest)\"", #""sha256": "abc""#,
            "packs[0].archive.sha256: expected 64 hexadecimal digits, found 'abc'"
        ),
        (
            #""format": "tar.zst""#, #""format": "rar""#,
            "packs[0].archive.format: expected one of 'tar', 'tar.gz', 'tar.xz', 'tar.zst', "
                + "'tar.bz2', 'tar.lz4', 'zip', 'file', found 'rar'"
        ),
        (
            #"{"essential": {"installationEventTypes": ["firstInstallation"]}}"#, "{}",
            "packs[0].policy: expected one of 'essential', 'prefetch', 'onDemand', found none"
        ),
        (
            #"{"essential": {"installationEventTypes": ["firstInstallation"]}}"#,
            #"{"lazy": {}}"#,
            "packs[0].policy: expected one of 'essential', 'prefetch', 'onDemand', found 'lazy'"
        ),
        (
            #""policy": {"#, #""policy": {"onDemand": {}, "#,
            "packs[0].policy: expected one of 'essential', 'prefetch', 'onDemand', "
                + "found 'essential' and 'onDemand'"
        ),
        (
            "firstInstallation", "never",
            "packs[0].policy.essential.installationEventTypes[0]: "
                + "expected one of 'firstInstallation', 'subsequentUpdate', found 'never'"
        ),
        (
            #"["firstInstallation"]"#, "[1]",
            "packs[0].policy.essential.installationEventTypes[0]: expected a string, found 1"
        ),
        (
            #"{"installationEventTypes": ["firstInstallation"]}"#, "{}",
            "packs[0].policy.essential.installationEventTypes: "
                + "expected an array of strings, found nothing"
        ),
        (
            #""archive": \#(Sample.archive)"#, #""index": {}"#,
            "packs[0].index.url: expected a string, found nothing"
        ),
        (
            #""archive": \#(Sample.archive)"#, #""archive": []"#,
            "packs[0].archive: expected an object, found an array"
        ),
        (
            #"">=2.3 <3""#, #""2.3""#,
            "requires.applicationVersion: expected comparisons such as '>=2.3 <3', found '2.3'"
        ),
        (
            #""size": 18350112"#, #""size": 1099511627777"#,
            "packs[0].archive.size: "
                + "expected a whole number from 0 to 1099511627776, found 1099511627777"
        ),
        (
            #""fileCount": 12"#, #""fileCount": 1000001"#,
            "packs[0].fileCount: expected a whole number from 0 to 1000000, found 1000001"
        ),
        (
            #""fileCount": 12"#, #""fileCount": 12345678901234567890123"#,
            "packs[0].fileCount: expected a whole number, found 1.2345678901234568e+22"
        ),
        // Two directories for each file, and 4,096 more.
        (
            #""directoryCount": 3"#, #""directoryCount": 4121"#,
            "packs[0].directoryCount: expected a whole number from 0 to 4120, found 4121"
        ),
        (
            #""format": "tar.zst""#, #""format": "file", "fileName": "a/b""#,
            "packs[0].archive.fileName: expected a file name without '/', found 'a/b'"
        ),
        (
            #""format": "tar.zst""#, #""format": "file", "fileName": "..""#,
            "packs[0].archive.fileName: expected a path without '.' and '..' components, found '..'"
        ),
        (
            #""https://mirror.example.net/w/""#, #""w/""#,
            "baseURLs[1]: expected an absolute http, https or file URL, found 'w/'"
        ),
        (
            #""manifestVersion": 1"#, #""manifestVersion": 2"#,
            "format version 2, expected 1"
        ),
    ])
    func aBrokenRuleIsReportedWithItsMember(part: String, other: String, message: String) throws {
        let text = try Sample.manifest.replacing(once: part, with: other)
        let error = #expect(throws: ManifestError.self) { try Manifest(json: Array(text.utf8)) }
        #expect(error?.description == message)
    }

    @Test func errorsAreFacts() throws {
        func error(_ text: String) -> ManifestError? {
            #expect(throws: ManifestError.self) { try Manifest(json: Array(text.utf8)) }
        }
        #expect(
            error("[]")
                == .invalid(
                    member: "the document",
                    ValueError(expected: "an object", found: "an array")
                )
        )
        let twins = try Sample.manifest.replacing(
            once: Sample.pack("aurora"),
            with: [Sample.pack("a"), Sample.pack("b"), Sample.pack("a")].joined(separator: ",")
        )
        #expect(
            error(twins) == .duplicate(member: "packs[2].id", first: "packs[0].id", value: "a")
        )
        #expect(
            error(twins)?.description
                == "packs[2].id: expected a value of its own, found 'a' of packs[0].id"
        )
        #expect(error("{\0}") == .notJSON("expected UTF-8, found a zero byte"))
        #expect(
            error(String(repeating: " ", count: ManifestLimits.byteCount + 1))
                == .tooLarge(limit: .mebibytes(16), found: ByteCount(16_777_217))
        )
    }
}

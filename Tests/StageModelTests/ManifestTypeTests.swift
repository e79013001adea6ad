import StageModel
import Testing

/// Each member of a manifest and of a registration, replaced with a value of every other type.
@Suite struct ManifestTypeTests {
    private static let values = ["null", "true", "1", "1.5", #""?""#, "[]", "[{}]", "{}"]

    @Test(arguments: [
        (#""manifestVersion": "#, "1", ["1"]),
        (#""application": "#, #""net.rorklab.wallpaper""#, []),
        (#""revision": "#, "42", ["1"]),
        (#""requires": "#, #"{"applicationVersion": ">=2.3 <3"}"#, ["null", "{}"]),
        (#""applicationVersion": "#, #"">=2.3 <3""#, ["null"]),
        (#""packs": "#, "[\(Sample.pack("aurora"))]", ["[]"]),
        (#""id": "#, #""aurora""#, []),
        (#""version": "#, "7", ["1"]),
        (#""policy": "#, #"{"essential": {"installationEventTypes": ["firstInstallation"]}}"#, []),
        (#""essential": "#, #"{"installationEventTypes": ["firstInstallation"]}"#, []),
        (#""installationEventTypes": "#, #"["firstInstallation"]"#, ["[]"]),
        (#""archive": "#, Sample.archive, []),
        (#""url": "#, #""packs/aurora-7.tar.zst""#, [#""?""#]),
        (#""format": "#, #""tar.zst""#, []),
        (#""size": "#, "18350112", ["1"]),
        (#""sha256": "#, "\"\(Sample.digest)\"", []),
        (#""installedSize": "#, "19011233", ["1"]),
        (#""fileCount": "#, "12", ["1"]),
        (#""directoryCount": "#, "3", ["null", "1"]),
        (#""priority": "#, "10", ["null", "1"]),
        (#""userInfo": "#, #"{"b": [1, 2.5, null], "a": true}"#, values),
    ])
    func aMemberOfAManifest(name: String, value: String, accepted: [String]) throws {
        for other in Self.values {
            let text = try Sample.manifest.replacing(once: name + value, with: name + other)
            let isAccepted = (try? Manifest(json: Array(text.utf8))) != nil
            #expect(isAccepted == accepted.contains(other), "\(name)\(other)")
        }
    }

    /// The sizes that 'gc --quota' takes.
    @Test(
        arguments: [
            ("0", 0), ("30000000", 30_000_000), (#""30MB""#, 30_000_000),
            (#""1.5 GiB""#, 1_610_612_736),
            (#""0""#, 0), ("null", nil),
        ] as [(String, Int64?)]
    )
    func aQuotaIsANumberOrATextOfASize(text: String, bytes: Int64?) throws {
        let trust = #""trust": "transport""#
        let document = try Sample.registration.replacing(
            once: trust,
            with: "\(trust), \"quota\": \(text)"
        )
        let registration = try Registration(json: Array(document.utf8))
        #expect(registration.quota == bytes.map { ByteCount($0) })
    }

    @Test(arguments: [
        (#""registrationVersion": "#, "1", ["1"]),
        (#""application": "#, #""net.rorklab.wallpaper""#, []),
        (#""version": "#, #""2.4.1""#, [#""?""#]),
        (#""applicationGroup": "#, #""net.rorklab""#, []),
        (
            #""manifestURLs": "#, #"["https://cdn.example.org/wallpaper/manifest.json"]"#, []
        ),
        (#""trust": "#, #""transport""#, []),
        (#""downloadAllowance": "#, "1000", ["null", "1"]),
        (#""downloadDomainAllowList": "#, #"["example.org", "*.example.net"]"#, ["null", "[]"]),
        (#""path": "#, #""/usr/lib/wallpaper/downloads""#, []),
        (#""arguments": "#, #"["--quiet"]"#, ["null", "[]"]),
        (#""backgroundEventsHandler": "#, #"{"path": "/usr/lib/wallpaper/events"}"#, ["null"]),
    ])
    func aMemberOfARegistration(name: String, value: String, accepted: [String]) throws {
        for other in Self.values {
            let text = try Sample.registration.replacing(once: name + value, with: name + other)
            let isAccepted = (try? Registration(json: Array(text.utf8))) != nil
            #expect(isAccepted == accepted.contains(other), "\(name)\(other)")
        }
    }
}

import StageModel

/// Manifests and registrations for tests, as text with replaceable parts.
enum Sample {
    static let digest = String(repeating: "0a", count: 32)

    static let archive = """
        {"url": "packs/aurora-7.tar.zst", "format": "tar.zst", "size": 18350112, \
        "sha256": "\(digest)"}
        """

    static func pack(_ id: String) -> String {
        """
        {"id": "\(id)", "version": 7, \
        "policy": {"essential": {"installationEventTypes": ["firstInstallation"]}}, \
        "archive": \(archive), "installedSize": 19011233, "fileCount": 12, \
        "directoryCount": 3, "priority": 10, \
        "userInfo": {"b": [1, 2.5, null], "a": true}}
        """
    }

    static let manifest = """
        {"manifestVersion": 1, "application": "net.rorklab.wallpaper", "revision": 42, \
        "requires": {"applicationVersion": ">=2.3 <3"}, \
        "baseURLs": ["https://cdn.example.org/wallpaper/", "https://mirror.example.net/w/"], \
        "packs": [\(pack("aurora"))], "later": {"is": ["ignored"]}}
        """

    static let registration = """
        {"registrationVersion": 1, "application": "net.rorklab.wallpaper", "version": "2.4.1", \
        "applicationGroup": "net.rorklab", \
        "manifestURLs": ["https://cdn.example.org/wallpaper/manifest.json"], \
        "trust": "transport", \
        "restrictions": {"downloadAllowance": 1000, "essentialDownloadAllowance": 2000, \
        "maxInstallSize": 3000, "essentialMaxInstallSize": 4000, \
        "downloadDomainAllowList": ["example.org", "*.example.net"]}, \
        "downloaderExtension": {"path": "/usr/lib/wallpaper/downloads", "arguments": ["--quiet"]}, \
        "backgroundEventsHandler": {"path": "/usr/lib/wallpaper/events"}}
        """

    /// The expected manifest.
    static func expected() throws -> Manifest {
        var pack = Pack(
            id: try PackID("aurora"),
            version: 7,
            policy: .essential([.firstInstallation]),
            archive: PackArchive(
                url: "packs/aurora-7.tar.zst",
                format: .tarZstandard,
                size: ByteCount(18_350_112),
                digest: try Digest(hexadecimal: digest)
            ),
            installedSize: ByteCount(19_011_233),
            fileCount: 12
        )
        pack.directoryCount = 3
        pack.priority = 10
        pack.userInfo = #"{"a":true,"b":[1,2.5,null]}"#
        return Manifest(
            application: try ApplicationID("net.rorklab.wallpaper"),
            revision: 42,
            applicationVersion: try VersionRequirement(">=2.3 <3"),
            baseURLs: ["https://cdn.example.org/wallpaper/", "https://mirror.example.net/w/"],
            packs: [pack]
        )
    }
}

extension String {
    /// Returns the text with one occurrence replaced; the test fails if it does not occur.
    func replacing(once part: String, with other: String) throws -> String {
        guard let range = firstRange(of: part) else { throw Missing(part: part) }
        return replacingCharacters(in: range, with: other)
    }

    private func replacingCharacters(in range: Range<String.Index>, with other: String) -> String {
        self[..<range.lowerBound] + other + self[range.upperBound...]
    }
}

/// The text does not contain the part to replace.
struct Missing: Error {
    var part: String
}

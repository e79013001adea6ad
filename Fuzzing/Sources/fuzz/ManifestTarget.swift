import StageModel
import SystemPackage

@testable import StageExtension
@testable import StagePublish

/// Manifests, registrations, recipes, and the messages and answers of downloader extensions.
///
/// - Encoding and decoding a parsed value gives an equal value.
/// - URLs of a pack are absolute, and each object has at least one.
/// - A recipe is equal to the same recipe without comments; its patterns match in bounded time.
enum ManifestTarget: FuzzTarget {
    static func test(_ bytes: [UInt8]) {
        if let manifest = parsed({ () throws(ManifestError) in try Manifest(json: bytes) }) {
            check(manifest)
        }
        if let registration = parsed({ () throws(ManifestError) in try Registration(json: bytes) })
        {
            let again = parsed { () throws(ManifestError) in
                try Registration(json: registration.json())
            }
            require(again == registration, "a registration is written as it was read")
        }
        if let recipe = parsed({ () throws(ManifestError) in try Recipe(json: bytes) }) {
            let again = parsed { () throws(ManifestError) in
                try Recipe(json: RelaxedJSON.strict(bytes))
            }
            require(again == recipe, "comments of a recipe mean nothing")
            for case .pattern(let pattern) in recipe.selectors {
                _ = pattern.excludes(pattern.text)
                _ = pattern.excludes("\(pattern.text)/\(pattern.text)")
            }
        }
        checkExtension(bytes)
    }

    private static func check(_ manifest: Manifest) {
        let again = parsed { () throws(ManifestError) in try Manifest(json: manifest.json()) }
        require(again == manifest, "a manifest is written as it was read")
        for pack in manifest.packs {
            require(pack.index != nil || pack.archive != nil, "a pack can be fetched")
            for url in pack.urls { check(manifest.urls(for: url, manifestURL: base)) }
            guard let index = pack.index else { continue }
            check(manifest.urls(forBundle: index.digest, of: index, manifestURL: base))
            check(manifest.urls(forDeltaSet: index.digest, of: index, manifestURL: base))
        }
    }

    private static func check(_ urls: [String]) {
        require(!urls.isEmpty, "there is a URL to ask")
        for url in urls {
            let isAbsolute = ["http://", "https://", "file://"].contains { scheme in
                url.utf8.prefix(scheme.utf8.count).elementsEqual(scheme.utf8)
            }
            require(isAbsolute, "'\(url)' is absolute")
        }
    }

    private static func checkExtension(_ bytes: [UInt8]) {
        if let message = parsed({ () throws(ManifestError) in try ExtensionMessage(json: bytes) }) {
            let again = parsed { () throws(ManifestError) in
                try ExtensionMessage(json: message.json())
            }
            require(again == message, "a message is written as it was read")
        }
        for message in messages {
            let answer = parsed { () throws(ManifestError) in
                try ExtensionAnswer(json: bytes, to: message)
            }
            guard let answer else { continue }
            let again = parsed { () throws(ManifestError) in
                try ExtensionAnswer(json: answer.json(), to: message)
            }
            require(again == answer, "an answer is written as it was read")
        }
    }

    private static let base = "https://cdn.example.org/a/manifest.json"

    private static let request = ExtensionRequest(
        .update,
        application: ApplicationID(unchecked: "net.rorklab.wallpaper"),
        applicationVersion: "2.4.1",
        applicationGroup: ApplicationGroupID(unchecked: "net.rorklab"),
        manifest: "/run/stagepack/manifest.json",
        container: "/var/lib/stagepack/c",
        scratch: "/run/stagepack/scratch"
    )

    private static let download = ExtensionDownload.pack(
        PackID(unchecked: "dawn"),
        essential: true,
        priority: 7
    )

    /// A message of each kind, whose answers differ.
    private static let messages: [ExtensionMessage] = [
        .downloads(request),
        .finished(request, download, file: "/run/stagepack/file"),
        .challenge(request, download, ExtensionChallenge(method: "basic", host: "a", realm: "r")),
    ]

    /// Manifests and registrations come from `Manifests`.
    static func seeds() -> [[UInt8]] {
        messages.map { $0.json() }
            + [
                ExtensionAnswer.downloads([download]), .nothing,
                .challenge(.useCredential(user: "a", password: "b")),
            ].map { $0.json() }
            + utf8(
                """
                // a recipe
                {"assetPackID": "aurora", "downloadPolicy": {"essential": {
                    "installationEventTypes": ["firstInstallation", "subsequentUpdate"]}},
                 "fileSelectors": [{"file": "a"}, {"directory": "b"}, {"filePattern": "**/*.[a-z]?"},
                    {"fileSource": "c", "fileDestination": "d/e"},
                    {"directorySource": "f", "directoryDestination": "g"},
                    {"fileExclusion": "**/.*"},],
                 "platforms": ["linux"], "language": "de-AT", "sourceRoot": "..", "userInfo": {"a": 1},}
                """
            )
    }

    static let words = utf8(
        "\"manifestVersion\": 1",
        "\"application\":",
        "\"revision\":",
        "\"requires\":",
        "\"baseURLs\":",
        "\"packs\":",
        "\"id\":",
        "\"version\":",
        "\"downloadPolicy\":",
        "\"archive\":",
        "\"index\":",
        "\"url\":",
        "\"size\":",
        "\"sha256\":",
        "\"format\":",
        "\"installedSize\":",
        "\"fileCount\":",
        "\"directoryCount\":",
        "\"priority\":",
        "\"userInfo\":",
        "\"deltas\":",
        "\"registrationVersion\": 1",
        "\"applicationGroup\":",
        "\"manifestURLs\":",
        "\"trust\":",
        "\"root\":",
        "\"essential\":",
        "\"prefetch\":",
        "\"onDemand\":",
        "firstInstallation",
        "subsequentUpdate",
        "http://127.0.0.1/",
        "https://",
        "file:///",
        "../",
        "\"assetPackID\":",
        "\"fileSelectors\":",
        "\"filePattern\":",
        "**/",
        "[!a-z]",
        "\"protocol\": 1",
        "\"kind\":",
        "\"disposition\":",
        "null",
        "{}"
    )
}

import FoundationEssentials
import StageModel

@testable import StageContainer

/// The records in containers: `container.json`, `pack.json`, pins, histories, and stored manifests.
///
/// - Encoding and decoding a parsed record gives an equal record.
/// - Numbers that calculations use are within their limits.
enum RecordTarget: FuzzTarget {
    static func test(_ bytes: [UInt8]) {
        if let record = read(ContainerRecord.self, from: bytes) {
            let again = read(ContainerRecord.self, from: encoded(record))
            require(again?.formatVersion == record.formatVersion, "the format is written as read")
        }
        if let pin = read(Pin.self, from: bytes) {
            require(RecordLimits.times.contains(Int(pin.pinnedAt)), "a pin has a time")
            require(read(Pin.self, from: encoded(pin)) == pin, "a pin is written as it was read")
        }
        if let manifest = read(StoredManifest.self, from: bytes) {
            let again = read(StoredManifest.self, from: encoded(manifest))
            require(again == manifest, "a stored manifest is written as it was read")
        }
        if let pack = read(StagedPack.self, from: bytes) {
            require(pack.archiveSize <= RecordLimits.downloadSize, "a download has a size")
            require(pack.installedSize <= ManifestLimits.installedSize, "a pack has a size")
            require(read(StagedPack.self, from: pack.json) == pack, "a pack is written as read")
            let name = GenerationName(version: pack.version, digest: pack.contentDigest)
            require(
                name.content.map { $0 == (pack.version, pack.contentDigest) } ?? false,
                "the name of a generation says what it has"
            )
        }
        if let history = read(StagingHistory.self, from: bytes) {
            let again = read(StagingHistory.self, from: history.json())
            require(again == history, "a history is written as it was read")
            for pack in history.packs {
                require(RecordLimits.failures.contains(pack.failures), "failures can be counted")
            }
        }
    }

    private static func read<Value: JSONReadable>(
        _ type: Value.Type,
        from bytes: [UInt8]
    ) -> Value? {
        parsed { () throws(ManifestError) in try Value(reading: try JSONNode(json: bytes)) }
    }

    private static func encoded(_ value: some Encodable) -> [UInt8] {
        guard let data = try? JSONEncoder().encode(value) else {
            fatalError("a record is always JSON")
        }
        return Array(data)
    }

    private static let digest = String(repeating: "0123456789abcdef", count: 4)

    static func seeds() -> [[UInt8]] {
        utf8(
            #"{"formatVersion": 1}"#,
            """
            {"application":"net.example.wallpaper","archiveDigest":"\(digest)","archiveSize":20218,
            "directoryCount":1,"fileCount":3,"id":"aurora","installedSize":70000,"manifestRevision":2,
            "source":"https://cdn.example.org/aurora-2.tar.zst","stagedAt":1790000000,"version":2,
            "replaced":"1-\(digest)"}
            """,
            """
            {"archiveDigest":"\(digest)","pinnedAt":1790000000,"rolledBackFrom":"2-\(digest)","version":1}
            """,
            """
            {"version":1,"contentDigest":"\(digest)","pinnedAt":1790000000}
            """,
            """
            {"url":"https://a/m","resolvedURL":"https://b/m","entityTag":"\\"1\\"","receivedAt":1790000000,
            "text":"{}","ownFormatOf":"net.example.wallpaper"}
            """
        ) + [history.json()]
    }

    /// A history with each member.
    private static var history: StagingHistory {
        var pack = StagingHistory.PackEntry(
            id: PackID(unchecked: "aurora"),
            version: 2,
            decidedAt: 1_790_000_000,
            outcome: .failed,
            rule: .policy(name: "essential", event: .update, isEssentialOnly: false),
            reason: .outdated(staged: 1)
        )
        pack.failures = 2
        pack.source = "https://cdn.example.org/aurora-2.tar.zst"
        var history = StagingHistory()
        history.registration = "/etc/net.example.json"
        history.applicationVersion = "2.1"
        history.firstLoadedAt = 1_790_000_000
        history.lastSuccessAt = 1_790_000_001
        history.lastRun = .init(endedAt: 1_790_000_002, request: nil, isEssentialOnly: true)
        history.packs = [pack]
        return history
    }

    static let words = utf8(
        "\"formatVersion\":",
        "\"application\":",
        "\"archiveDigest\":",
        "\"contentDigest\":",
        "\"archiveSize\":",
        "\"installedSize\":",
        "\"directoryCount\":",
        "\"fileCount\":",
        "\"id\":",
        "\"manifestRevision\":",
        "\"source\":",
        "\"stagedAt\":",
        "\"version\":",
        "\"replaced\":",
        "\"pinnedAt\":",
        "\"rolledBackFrom\":",
        "\"url\":",
        "\"resolvedURL\":",
        "\"entityTag\":",
        "\"receivedAt\":",
        "\"text\":",
        "\"ownFormatOf\":",
        "\"registration\":",
        "\"pending\":",
        "\"spent\":",
        "\"lastRun\":",
        "\"packs\":",
        "\"failures\":",
        "9223372036854775807",
        "-9223372036854775808",
        "253402300799",
        "null",
        digest
    )
}
